"""The cache as a press, for kvpress's pipeline: pip install 'distinctkv[press]'.

    press = DistinctPress(threshold=1.0)  # or compression_ratio=0.75
    pipe(context, question=question, press=press)  # or: with press(model): model(ids, ...)

It has what kvpress asks of a press and needs nothing of kvpress, which wants an older transformers
and so an environment of its own. A DynamicCache has as many columns for each head, so heads are
padded to the longest of their layer, as in kvpress: what a press shows is accuracy. To hold fewer
bytes use `distinct_cache`.
"""

# B streams, H key-value heads, S slots of the longest head, R tokens outside, L queries

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from .attention import bias, stock, visible
from .cache import DistinctCache
from .care import Care, check_number
from .making import distinct_cache
from .metric import Metric

NAME = "distinctkv-press"
MARK = "_distinctkv_press"  # on an attention module: what is added to the logits of a pressed cache


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
                AttentionInterface.register(NAME, attention)
                AttentionMaskInterface.register(NAME, sdpa_mask)
                model.set_attn_implementation(NAME)
                out.past_key_values = plain
            return out

        try:
            hooks.append(model.model.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(model.model.register_forward_hook(after, with_kwargs=True))
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
    """Put slots and window into an empty DynamicCache, and the bias of its columns by its layer."""
    for index, layer in enumerate(distinct.layers):
        module, keys, values = distinct.anatomy.attentions[index], layer.keys, layer.values
        real = torch.ones_like(keys[:, 0, :, 0], dtype=torch.bool)
        real = real if layer.real is None else layer.real
        added = torch.zeros(real.shape).to(keys.device).masked_fill(~real, -inf)
        added = added[:, None].expand(keys.shape[:3])
        if layer.slots is not None:
            width = int(layer.slots.lengths.max())
            parts = [layer.slots.padded(b).widen(width) for b in range(len(keys))]
            counts = torch.stack([part.counts for part in parts])
            logs = bias(counts, distinct.plan.care.cap).masked_fill(counts == 0, -inf)
            keys = torch.cat((torch.stack([part.keys for part in parts]), keys), 2)
            values = torch.cat((torch.stack([part.values for part in parts]), values), 2)
            added = torch.cat((logs, added), 2)
        plain.update(keys, values, index)
        setattr(module, MARK, (keys[:, :, 0].clone(), added))


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: Any,  # noqa: ANN401 - what transformers passes on
) -> tuple[Tensor, None]:
    """Attention to a pressed cache and what came after it; to any other cache, sdpa."""
    pressed: tuple[Tensor, Tensor] | None = getattr(module, MARK, None)
    L = query.shape[2]
    if pressed is None or key.shape[2] < pressed[1].shape[2] + L:
        return stock(module, query, key, value, attention_mask, dropout=dropout, **options)
    first, added = pressed
    if not torch.equal(key[:, :, 0], first):
        return stock(module, query, key, value, attention_mask, dropout=dropout, **options)
    B, H, S = added.shape
    R = key.shape[2] - S
    seen = visible(torch.ones(B, R, dtype=torch.bool, device=key.device), L)
    window = torch.zeros(seen.shape, device=key.device).masked_fill(~seen, -inf)
    mask = torch.cat((added[:, :, None].expand(B, H, L, S), window[:, None].expand(B, H, L, R)), 3)
    mask = mask.repeat_interleave(query.shape[1] // H, 1).to(query.dtype)
    return stock(module, query, key, value, mask, dropout=dropout, **options)
