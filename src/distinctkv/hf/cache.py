"""A cache for `generate` that grows with what is new in the text, not with its length."""

# B streams, H key-value heads, L tokens of a pass

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import Cache

from . import door, saving, summary
from .anatomy import Anatomy
from .attention import MARK, NAME, read, stock
from .importance import received
from .layer import DistinctLayer
from .merging import absorb
from .metric import Metric, Moments, Scale
from .plan import Plan
from .sizing import Sizing
from .slots import Slots
from .streams import Arrival, Streams

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BLOCK = 16  # tokens that wait, when they come one by one, to be absorbed together


class DistinctCache(Cache):  # type: ignore[misc]
    """Slots for the old tokens of a text, the newest tokens as they are; see `distinct_cache`."""

    layers: list[DistinctLayer]

    def __init__(
        self, anatomy: Anatomy, plan: Plan, metric: Metric | None = None, *, trace: bool = False
    ) -> None:
        usage = plan.surprise is not None
        layers = [
            DistinctLayer(anatomy.rotary, usage=usage, trace=trace) for _ in anatomy.attentions
        ]
        super().__init__(layers=layers)
        self.anatomy, self.plan, self.metric = anatomy, plan, metric
        self.observes = False  # queries for `calibrate`
        self._forget()

    def _forget(self) -> None:
        self.streams: Streams | None = None
        self.sizing = Sizing(self.plan)
        self.arrival: Arrival | None = None
        self.frequencies: Tensor | None = None
        self.awaited: int | None = None

    # What models call

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        """Hand new keys and values on to our attention, or hold them as a DynamicCache would."""
        door.check_keys(self, key_states)
        layer = self.layers[layer_idx]
        if self.anatomy.config._attn_implementation != NAME:
            door.check_stock(self, layer, key_states.shape[2])
        elif self.plan.merges or self.observes:
            self.awaited = layer_idx
            setattr(key_states, MARK, self)
            return key_states, value_states
        return layer.update(key_states, value_states)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float,
        dropout: float = 0.0,
        position_ids: Tensor | None = None,
        **options: object,
    ) -> Tensor:
        """Attention of one layer, and then its new tokens into the cache."""
        index, positions = door.check_caller(self, module, dropout, position_ids, options)
        layer = self.layers[index]
        arrival = door.admit(self, index, key, positions, mask)
        keys, values = layer.window(key, value)
        real = arrival.real if layer.real is None else torch.cat((layer.real, arrival.real), 1)
        if keys.shape[2] == layer.seen + key.shape[2]:
            out = stock(module, query, keys, values, mask, scaling=scaling)[0]
        else:
            assert layer.slots is not None
            cap = self.plan.care.cap
            out = read(query, keys, values, real, layer.slots, scaling, cap)
            out = out.transpose(1, 2).contiguous()
        with torch.no_grad():
            self._observe(layer, query, value, arrival, scaling)
            if self.plan.care.watches:
                self._weigh(layer, query, keys, real, arrival, scaling)
            layer.put(keys, values, arrival)
            self._absorb(layer, index, key.shape[2])
        return out

    def _observe(
        self, layer: DistinctLayer, query: Tensor, value: Tensor, arrival: Arrival, scaling: float
    ) -> None:
        """Measure queries, where the metric is the context's own."""
        if self.metric is not None and not self.observes:
            return
        B, H, _, _ = value.shape
        if layer.moments is None:
            layer.moments = Moments.zero(B, H, query.shape[-1], query.device)
        queries = self.anatomy.rotary.unrotate(query, arrival.positions[:, None])
        layer.moments.add(queries, value, arrival.real, scaling)

    def _weigh(
        self,
        layer: DistinctLayer,
        query: Tensor,
        keys: Tensor,
        real: Tensor,
        arrival: Arrival,
        scaling: float,
    ) -> None:
        """Measure the attention that tokens get before they are merged."""
        assert self.streams is not None
        columns = torch.arange(arrival.seen, self.streams.seen, device=keys.device)
        seen = columns + 1 - self.streams.pads.to(keys.device)[:, None]
        slots = layer.slots or Slots.none(keys, keys)
        layer.attend(received(query, keys, real, seen, slots, scaling, self.plan.care.cap))

    def _absorb(self, layer: DistinctLayer, index: int, length: int) -> None:
        columns = layer.outside - self.plan.recent
        if self.plan.merges and columns >= (1 if length > 1 else BLOCK):
            thresholds = self.sizing.now(self)
            opened = absorb(layer, columns, self.plan, thresholds, lambda b: self.scale(index, b))
            self.sizing.note(opened)
        if index == len(self.layers) - 1:
            self.sizing.settle(self)

    # What is held

    def scale(self, index: int, stream: int) -> Scale:
        """The metric of a layer, for a stream."""
        layer = self.layers[index]
        if self.metric is not None:
            return self.metric.scale(index, layer.keys.device)
        assert layer.moments is not None
        return layer.moments.scale(stream)

    @property
    def n_heads(self) -> int:
        """Key-value heads of all layers."""
        return self.anatomy.heads * len(self.layers)

    def n_slots(self, stream: int) -> int:
        """Slots of a stream, over all layers and heads."""
        return sum(
            int(layer.slots.lengths[stream].sum())
            for layer in self.layers
            if layer.slots is not None
        )

    def tokens(self, stream: int) -> int:
        """Tokens of a stream, without padding."""
        return 0 if self.streams is None else self.streams.seen - int(self.streams.pads[stream])

    def outside(self, stream: int) -> int:
        """Tokens of a stream that are not slots yet, without padding."""
        real = self.layers[0].real
        return 0 if real is None else int(real[stream].sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory behind every tensor held."""
        return summary.nbytes(self)

    def summary(self, stream: int = 0) -> summary.Summary:
        """What the cache holds; print it."""
        return summary.summarise(self, stream)

    def merged(self, tokens: Sequence[str], layer: int, head: int, stream: int = 0) -> str:
        """Which tokens share a slot, as text; the cache must be made with ``trace=True``."""
        return summary.merged(self, tokens, layer, head, stream)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to a safetensors file with a digest, whole or not at all."""
        saving.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
        """Read a cache back for the model it was made with."""
        return saving.load(path, model)

    # What generate calls

    def reset(self) -> None:
        """Forget everything but the plan."""
        super().reset()
        self._forget()

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        super().crop(tokens)
        first = self.layers[0]
        if first.seen == 0:
            self._forget()
        elif self.streams is not None:
            assert first.positions is not None
            assert first.real is not None
            self.streams.crop(first.seen, first.positions, first.real)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder streams, for beams."""
        self._select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some streams."""
        self._select(indices.nonzero()[:, 0] if indices.dtype == torch.bool else indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each stream."""
        batch = len(self.layers[0].keys) if self.layers[0].is_initialized else 0
        self._select(torch.arange(batch).repeat_interleave(repeats))

    def _select(self, streams: Tensor) -> None:
        for layer in self.layers:
            layer.select(streams)
        if self.streams is not None:
            self.streams.select(streams)
            self.sizing.select(streams.tolist())
