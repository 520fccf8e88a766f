"""What a cache holds, in numbers and in words."""

# N layers, H key-value heads

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .saving import held

if TYPE_CHECKING:
    from .cache import DistinctCache

BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Slots of each layer and head of a stream, and the bytes of the whole cache.

    ``bytes`` counts every tensor held by the memory behind it, ``full`` is what a DynamicCache
    would hold for the same tokens. ``metric`` is the part that measures queries; it does not grow.
    """

    tokens: int
    outside: int
    slots: NDArray[np.int64]  # (N, H)
    bytes: int
    full: int
    metric: int
    threshold: float | None

    @property
    def kept(self) -> float:
        """Slots and tokens held, as a part of the tokens seen."""
        held = float(self.slots.mean()) + self.outside
        return held / self.tokens if self.tokens else 1.0

    def save_figure(self, path: str | os.PathLike[str]) -> None:
        """Draw it to a file; needs ``pip install 'distinctkv[report]'``."""
        from .figure import save

        save(self, path)

    def __str__(self) -> str:
        """A line of numbers, and the share of tokens kept by each head, layer by layer."""
        lines = [
            f"{self.tokens} tokens in {self.slots.mean():.1f} slots a head and {self.outside} "
            f"outside: {self.kept:.1%} kept",
            f"{self.bytes:,} bytes of {self.full:,}, {self.metric:,} of them for the metric",
        ]
        share = self.slots / max(self.tokens - self.outside, 1)
        for index, row in enumerate(share):
            bars = "".join(BARS[round(8 * min(part, 1.0))] for part in row)
            lines.append(f"layer {index:3d} |{bars}| {row.min():.0%} to {row.max():.0%}")
        return "\n".join(lines)


def summarise(cache: DistinctCache, stream: int) -> Summary:
    """The summary of one stream; bytes are those of the whole batch."""
    H = cache.anatomy.heads
    rows = [
        [0] * H if layer.slots is None else layer.slots.lengths[stream].tolist()
        for layer in cache.layers
    ]
    seen = cache.get_seq_length()
    thresholds = cache.sizing.thresholds
    metric = [t for layer in cache.layers for n, t in held(layer).items() if n[:7] == "moments"]
    full = sum(
        seen * layer.keys[:, :, :1].nbytes // max(layer.keys[:, :, :1].shape[2], 1)
        + seen * layer.values[:, :, :1].nbytes // max(layer.values[:, :, :1].shape[2], 1)
        for layer in cache.layers
        if layer.is_initialized
    )
    return Summary(
        tokens=cache.tokens(stream) if cache.streams else seen,
        outside=cache.outside(stream) if cache.streams else seen,
        slots=np.array(rows),
        bytes=nbytes(cache),
        full=full,
        metric=_bytes(metric),
        threshold=thresholds[stream] if thresholds else cache.plan.start,
    )


def nbytes(cache: DistinctCache) -> int:
    """Bytes of memory behind every tensor held, the parts that views hide included."""
    return _bytes([tensor for layer in cache.layers for tensor in held(layer).values()])


def merged(
    cache: DistinctCache, tokens: Sequence[str], layer: int, head: int, stream: int = 0
) -> str:
    """Which tokens share a slot, a line for each slot of several; ``tokens`` are all seen."""
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


def _bytes(tensors: list[Tensor]) -> int:
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())
