"""A layer of a DynamicCache whose first columns are slots, and the attention that reads it."""

# B streams, H key-value heads, S columns that were pressed, R tokens after them, L queries

from __future__ import annotations

from copy import copy
from math import inf
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

from .anatomy import Anatomy
from .attention import registered, stock, visible
from .belonging import Belonging
from .errors import CropError, MaskError, PositionError, UnsupportedModelError
from .streams import Streams

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
