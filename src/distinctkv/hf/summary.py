"""What a cache holds, in numbers and in words."""

# N layers, H key-value heads

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .config import Care
from .serialization import held
from .slots import FLAT

if TYPE_CHECKING:
    from .cache import Holding

SLOTS = frozenset(f"slots.{name}" for name in FLAT)  # a row of each for every slot
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Slots of each layer and head of a stream, and its bytes.

    ``tokens`` were seen, without padding; ``outside`` of them are not slots yet; ``threshold`` is
    the one that was told or found, before `Care.tighten`; None while it is still to be found.

    ``bytes`` counts every tensor held by the memory behind it, queries that wait to be measured
    too; of what all streams of a batch share, each has its part, so that they add up to ``nbytes``
    of the cache. ``full`` is what a DynamicCache would hold for the stream, its padding included.
    ``metric`` is the part that measures queries; it does not grow.
    """

    tokens: int
    outside: int
    slots: NDArray[np.int64]  # (N, H)
    bytes: int
    full: int
    metric: int
    threshold: float | None
    stream: int = 0
    streams: int = 1  # of the batch
    begins: int = 0  # tokens until which all is held, as ``kept`` leaves no slots before; or 0

    @property
    def kept(self) -> float:
        """Slots and tokens held, as a part of the tokens seen."""
        held = float(self.slots.mean()) + self.outside
        return held / self.tokens if self.tokens else 1.0

    def __str__(self) -> str:
        """A line of numbers, and the share of tokens kept by each head, layer by layer."""
        which = f"stream {self.stream} of {self.streams}: " if self.streams > 1 else ""
        lines = [
            f"{which}{self.tokens} tokens in {self.slots.mean():.1f} slots a head and "
            f"{self.outside} outside: {self.kept:.1%} kept",
            f"{self.bytes:,} bytes of {self.full:,}, {self.metric:,} of them for the metric",
        ]
        if self.begins:
            lines.append(
                f"so short a text is held whole; it merges from about {self.begins} on, or "
                "sooner with a smaller recent"
            )
        lines.append("slots of each head for the tokens that are not outside, least to most:")
        share = self.slots / max(self.tokens - self.outside, 1)
        for index, row in enumerate(share):
            bars = "".join(BARS[round(8 * min(part, 1.0))] for part in row)
            lines.append(f"layer {index:3d} |{bars}| {row.min():.0%} to {row.max():.0%}")
        return "\n".join(lines)


def summarise(cache: Holding, stream: int) -> Summary:
    """The summary of one stream."""
    check_index("stream", stream, cache.n_streams)
    H = cache.anatomy.heads
    rows = [
        [0] * H if layer.slots is None else layer.slots.lengths[stream].tolist()
        for layer in cache.layers
    ]
    seen = cache.get_seq_length()
    thresholds = cache.sizing.thresholds
    full = sum(
        seen * H * part.shape[-1] * part.element_size()
        for layer in cache.layers
        if layer.is_initialized
        for part in (layer.keys, layer.values)
    )
    return Summary(
        tokens=cache.tokens(stream) if cache.streams else seen,
        outside=cache.outside(stream) if cache.streams else seen,
        slots=np.array(rows),
        bytes=nbytes(cache, stream),
        full=full,
        metric=nbytes(cache, stream, "moments."),
        threshold=thresholds[stream] if thresholds else cache.plan.start,
        stream=stream,
        streams=cache.n_streams,
        begins=cache.sizing.begins(cache, stream) if cache.streams else 0,
    )


def nbytes(cache: Holding, stream: int | None = None, prefix: str = "") -> int:
    """Bytes of memory behind every tensor held, the parts that views hide included.

    Of one stream, or of all; of the tensors whose name begins so, or of all.
    """
    sizes: dict[int, float] = {}
    parts = _parts(cache, stream)
    for layer in cache.layers:
        waiting = {f"asked.{number}": query for number, query in enumerate(layer.asked)}
        for name, tensor in (held(layer) | waiting).items():
            if name.startswith(prefix):
                storage = tensor.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes() * parts[name in SLOTS]
    return round(sum(sizes.values()))


def _parts(cache: Holding, stream: int | None) -> tuple[float, float]:
    """A stream's part of a tensor that all have alike, and of one that has a row for each slot."""
    if stream is None:
        return 1.0, 1.0
    slots = [cache.n_slots(number) for number in range(cache.n_streams)]
    return 1.0 / len(slots), slots[stream] / max(sum(slots), 1)


def brief(cache: Holding) -> str:
    """One line: how the cache is sized, and what it holds now."""
    n_streams, seen = cache.n_streams, cache.get_seq_length()
    slots = sum(map(cache.n_slots, range(n_streams))) / (max(n_streams, 1) * cache.n_heads)
    streams = f"{n_streams} streams of " if n_streams != 1 else ""
    outside = cache.layers[0].outside
    care = "" if cache.plan.care == Care() else f", care={cache.plan.care}"
    return (
        f"{type(cache).__name__}({cache.plan.way}{care}: {streams}{seen} tokens in {slots:.1f} "
        f"slots a head and {outside} outside, {cache.nbytes:,} bytes)"
    )


def check_index(name: str, number: int, size: int) -> None:
    """Refuse the number of what is not there."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a whole number, got {number!r}")
    if not 0 <= number < size:
        raise ValueError(f"{name} must lie in 0 to {size - 1}, got {number}")


def merged(cache: Holding, tokens: Sequence[str], layer: int, head: int, stream: int = 0) -> str:
    """Which tokens share a slot, a line for each slot of several; ``tokens`` are all seen."""
    for name, number, size in (
        ("layer", layer, len(cache.layers)),
        ("head", head, cache.anatomy.heads),
        ("stream", stream, cache.n_streams),
    ):
        check_index(name, number, size)
    owner = cache.layers[layer].owner
    if not cache.layers[layer].trace:
        raise ValueError("this cache kept no trace; make it with distinct_cache(..., trace=True)")
    if len(tokens) != cache.get_seq_length():
        raise ValueError(
            f"{len(tokens)} tokens were given, the cache has seen {cache.get_seq_length()}; "
            "give the text of each of them, in order"
        )
    slots: dict[int, list[int]] = {}
    for column, slot in enumerate([] if owner is None else owner[stream, head].tolist()):
        slots.setdefault(slot, []).append(column)
    slots.pop(-1, None)
    lines = [
        f"slot {slot}: " + " ".join(f"{column}:{tokens[column]!r}" for column in columns)
        for slot, columns in sorted(slots.items())
        if len(columns) > 1
    ]
    return "\n".join(lines)
