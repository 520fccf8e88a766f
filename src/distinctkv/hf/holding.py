"""What a cache holds, to be asked at any time: asking changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import Cache

from . import door, summary
from .anatomy import Anatomy
from .layer import DistinctLayer
from .plan import Plan
from .sizing import Sizing
from .streams import Streams


class Holding(Cache):  # type: ignore[misc]
    """A cache of ours as seen from outside."""

    layers: list[DistinctLayer]
    anatomy: Anatomy
    plan: Plan
    streams: Streams | None
    sizing: Sizing
    cut: bool

    @property
    def n_heads(self) -> int:
        """Key-value heads of all layers."""
        return self.anatomy.heads * len(self.layers)

    @property
    def n_streams(self) -> int:
        """Streams of the batch; one while nothing is held."""
        return len(self.layers[0].keys) if self.layers[0].is_initialized else 1

    def n_slots(self, stream: int) -> int:
        """Slots of a stream, over all layers and heads."""
        return self.n_slots_each()[stream]

    def n_slots_each(self) -> list[int]:
        """Slots of each stream."""
        lengths = [layer.slots.lengths for layer in self.layers if layer.slots is not None]
        if not lengths:
            return [0] * self.n_streams
        found: list[int] = torch.stack(lengths).sum((0, 2)).tolist()
        return found

    def tokens(self, stream: int) -> int:
        """Tokens of a stream, without padding."""
        return 0 if self.streams is None else self.streams.seen - int(self.streams.pads[stream])

    def outside(self, stream: int) -> int:
        """Tokens of a stream that are not slots yet, without padding."""
        return 0 if self.streams is None else self.streams.outside(stream, self.layers[0].outside)

    @property
    def nbytes(self) -> int:
        """Bytes of memory behind every tensor of all streams."""
        return summary.nbytes(self)

    def __repr__(self) -> str:
        """How it is sized and what it holds, in a line; `summary` says more."""
        return summary.brief(self)

    def summary(self, stream: int = 0) -> summary.Summary:
        """What the cache holds of one stream of a batch; print it."""
        door.check_whole(self)
        return summary.summarise(self, stream)

    def merged(self, tokens: Sequence[str], layer: int, head: int, stream: int = 0) -> str:
        """Which tokens share a slot, as text; the cache must be made with ``trace=True``."""
        return summary.merged(self, tokens, layer, head, stream)
