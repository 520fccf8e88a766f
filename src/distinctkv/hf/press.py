"""The cache as a press, for kvpress's pipeline: pip install 'distinctkv[press]'.

    press = DistinctPress(threshold=1.0)  # or compression_ratio=0.75
    pipe(context, question=question, press=press)  # or: with press(model): model(ids, ...)

It has what kvpress asks of a press and needs nothing of kvpress, which wants an older transformers
and so an environment of its own. A DynamicCache has as many columns for each head, so heads are
padded to the longest of their layer, as in kvpress: what a press shows is accuracy. To hold fewer
bytes use `distinct_cache`.
"""

# B streams, H key-value heads, S slots of the longest head, R tokens outside

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from .attention import bias
from .cache import DistinctCache
from .care import Care, check_number
from .making import distinct_cache
from .metric import Metric
from .pressed import Pressed, allow


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
