"""The cache as a press of kvpress, to measure it in kvpress's own pipeline."""

# B sequences, H key-value heads, L tokens, S slots

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

from distinctkv.hf.attention import bias, registered, stock, visible
from distinctkv.hf.cache import DistinctCache, distinct_cache
from distinctkv.hf.config import (
    Care,
    CropError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    check_number,
)
from distinctkv.hf.inputs import Streams
from distinctkv.hf.metric import Metric
from distinctkv.hf.model_support import Anatomy
from distinctkv.hf.rotary import Belonging

# B streams, H key-value heads, S columns that were pressed, R tokens after them, L queries


NAME = "distinctkv-press"
MARK = "_distinctkv_pressed"  # on keys that a pressed layer gives: which layer that is


class Owner(Belonging):
    """The layer that gave some keys, as long as it is there."""

    def __init__(self, layer: Pressed) -> None:
        self.layer = ref(layer)


class Pressed(DynamicLayer):  # type: ignore[misc]
    """Slots, padded to the longest head, then tokens; what is added to the logits of the slots.

    Every head has as many columns, so that kvpress may look at them and cut them.
    """

    def __init__(
        self,
        anatomy: Anatomy,
        keys: Tensor,
        values: Tensor,
        added: Tensor,
        streams: Streams,
        outside: int,
    ) -> None:
        super().__init__()
        self.anatomy = anatomy
        self.added = added  # (B, H, S); no columns once all was cut off
        self.streams = copy(streams)  # as they were pressed
        self.outside = outside  # newest columns of S that are tokens
        super().update(keys, values)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add tokens, and let the attention know whose keys these are."""
        self._cut()
        pressed, now = self.added.shape[2] > 0, self.anatomy.config._attn_implementation
        if pressed and now != NAME:
            raise UnsupportedModelError(
                f"attention is {now!r}, for which a slot of a pressed cache is a token like "
                f"others; call model.set_attn_implementation({NAME!r})"
            )
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if pressed:
            setattr(keys, MARK, Owner(self))
        return keys, values

    def reset(self) -> None:
        """Hold nothing, in older transformers too, where zeros would stay."""
        self.keys = self.values = None
        self.is_initialized = False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder streams, for beams."""
        super().reorder_cache(beam_idx)
        self._select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some streams."""
        super().batch_select_indices(indices)
        self._select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each stream."""
        super().batch_repeat_interleave(repeats)
        self._select(torch.arange(len(self.added)).repeat_interleave(repeats))

    def _cut(self) -> None:
        """Forget of the pressed what is no longer there: kvpress cuts keys off by itself."""
        left = self.get_seq_length()
        lost = self.added.shape[2] - left
        if lost <= 0:
            return
        if left and lost > self.outside:
            raise CropError(
                f"the last {lost} columns of a pressed cache were cut off, and only {self.outside} "
                "of them were tokens: the others are slots, of tokens all over the text; press "
                "the context again"
            )
        self.added = self.added[:, :, :left]
        self.streams.last = self.streams.last - lost
        self.outside -= min(lost, self.outside)

    def _select(self, streams: Tensor) -> None:
        if self.added.shape[2]:
            self.added = self.added[streams.to(self.added.device)]
            self.streams.select(streams)

    def check(self, positions: Tensor | None, mask: Tensor | None, length: int) -> None:
        """Refuse tokens that cannot stand there, or do not see all before them; forget them."""
        try:
            if positions is not None:
                self._check_positions(positions, length)
            if mask is not None:
                self._check_mask(mask, length)
        except ValueError:
            self.crop(-length)
            raise

    def _check_positions(self, positions: Tensor, length: int) -> None:
        last = self.streams.last
        positions = positions.to(last.device).expand(len(last), length)
        if bool((positions <= torch.cat((last[:, None], positions[:, :-1]), 1)).any()):
            raise PositionError(
                f"new tokens begin at positions {positions[:, 0].tolist()}, or do not grow, after "
                f"a context that ends at {last.tolist()}: a pressed cache has fewer columns "
                "than it has read tokens, and models count columns; give position_ids that go on"
            )

    def _check_mask(self, mask: Tensor, length: int) -> None:
        """What padding there is was told when the context was pressed; no mask changes it."""
        columns = torch.arange(self.get_seq_length(), device=mask.device)
        fits = mask.dtype == torch.bool and mask.shape[-2:] == (length, len(columns))
        if fits:
            hidden = (~mask[:, 0, -1]).sum(1)
            pads = self.streams.pads.to(mask.device).clamp(max=len(columns))
            known = (hidden == 0) | (hidden == pads)
            causal = columns <= columns[-length:, None]
            want = causal & (columns >= hidden[:, None, None])
            # Older transformers count tokens, not columns, and so let tokens see later ones.
            fits = bool(known.all() and ((mask & causal) == want[:, None]).all())
        if not fits:
            raise MaskError(
                f"the mask of shape {tuple(mask.shape)} hides more than what comes later and the "
                f"padding of the context, {self.streams.pads.tolist()} tokens: columns of a "
                "pressed cache are slots, which no mask can tell apart; leave attention_mask out"
            )

    def bias(self, queries: Tensor, tokens: int) -> Tensor:
        """What is added to the logits of L queries, (B, H G, L, S + R); R ``tokens`` end in L."""
        B, H, S = self.added.shape
        L = queries.shape[2]
        seen = visible(torch.ones(B, tokens, dtype=torch.bool, device=queries.device), L)
        window = torch.zeros(seen.shape, device=queries.device).masked_fill(~seen, -inf)
        slots = self.added[:, :, None].expand(B, H, L, S)
        added = torch.cat((slots, window[:, None].expand(B, H, L, tokens)), 3)
        return added.repeat_interleave(queries.shape[1] // H, 1).to(queries.dtype)


def allow(model: Any) -> None:  # noqa: ANN401 - any model of transformers
    """Let a model attend to pressed layers; to any other this is sdpa."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: Any,  # noqa: ANN401 - what transformers passes on
) -> tuple[Tensor, None]:
    """Attention to a pressed layer and what came after it; to any other, sdpa."""
    owner: Owner | None = getattr(key, MARK, None)
    layer = None if owner is None else owner.layer()
    if layer is None:
        return registered(module, query, key, value, attention_mask, dropout=dropout, **options)
    # Layers have columns of their own number, and a mask is made for the first.
    told = attention_mask if module is layer.anatomy.attentions[0] else None
    layer.check(options.get("position_ids"), told, query.shape[2])
    mask = layer.bias(query, key.shape[2] - layer.added.shape[2])
    return stock(module, query, key, value, mask, dropout=dropout, **options)


# B streams, H key-value heads, S slots of the longest head, R tokens outside


@dataclass
class DistinctPress:
    """Slots in place of tokens after the prefill; sized by a threshold or a compression ratio."""

    threshold: float | None = None
    compression_ratio: float | None = None
    sinks: int = 4
    recent: int | None = None
    care: Care | None = None
    metric: Metric | None = None

    @contextmanager
    def __call__(self, model: PreTrainedModel) -> Iterator[None]:
        """Press what is prefilled inside; the cache can be read after it too."""
        self.cache(model)  # whatever is wrong is told here
        model.set_attn_implementation("sdpa")
        hooks: list[Any] = []
        begun: list[tuple[DynamicCache, DistinctCache]] = []

        def before(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:  # noqa: ANN401
            begun.clear()  # of a pass that failed
            plain = options.get("past_key_values")
            plain = DynamicCache() if plain is None else plain
            if plain.get_seq_length():
                return None
            if type(plain) is not DynamicCache:
                raise TypeError(f"a press needs a DynamicCache, got {type(plain).__name__}")
            begun.append((plain, self.cache(model)))
            return inputs, {**options, "past_key_values": begun[-1][1]}

        def after(_: nn.Module, __: object, ___: object, out: Any) -> Any:  # noqa: ANN401
            if begun:
                plain, distinct = begun.pop()
                press(distinct, plain)
                allow(model)
                out.past_key_values = plain
            return out

        try:
            hooks.append(model.base_model.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(model.base_model.register_forward_hook(after, with_kwargs=True))
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def cache(self, model: PreTrainedModel) -> DistinctCache:
        """The cache that does the work."""
        kept = None if self.compression_ratio is None else 1 - self._ratio(self.compression_ratio)
        sizes: dict[str, Any] = {"sinks": self.sinks, "recent": self.recent}
        return distinct_cache(
            model, self.threshold, kept=kept, care=self.care, metric=self.metric, **sizes
        )

    @staticmethod
    def _ratio(ratio: float) -> float:
        check_number("compression_ratio", ratio)
        if not 0 <= ratio < 1:
            raise ValueError(
                f"compression_ratio must lie in [0, 1), got {ratio}; 0.75 holds a quarter, 0 all"
            )
        return ratio


def press(distinct: DistinctCache, plain: DynamicCache) -> None:
    """Put slots and window into an empty DynamicCache, and beside them the bias of each column."""
    for index, layer in enumerate(distinct.layers):
        keys, values = layer.keys, layer.values
        if layer.real is None or distinct.streams is None:
            plain.update(keys, values, index)  # all tokens as they are
            continue
        added = torch.zeros(layer.real.shape, dtype=torch.float32, device=keys.device)
        added.masked_fill_(~layer.real, -inf)
        added = added[:, None].expand(keys.shape[:3])
        if layer.slots is not None:
            width = int(layer.slots.lengths.max())
            parts = [layer.slots.padded(b).widen(width) for b in range(len(keys))]
            counts = torch.stack([part.counts for part in parts])
            logs = bias(counts, distinct.plan.care.cap).masked_fill(counts == 0, -inf)
            keys = torch.cat((torch.stack([part.keys for part in parts]), keys), 2)
            values = torch.cat((torch.stack([part.values for part in parts]), values), 2)
            added = torch.cat((logs, added), 2)
        plain.update(keys[:, :, :0], values[:, :, :0], index)  # so that there is a layer
        streams, outside = distinct.streams, layer.outside
        plain.layers[index] = Pressed(distinct.anatomy, keys, values, added, streams, outside)
