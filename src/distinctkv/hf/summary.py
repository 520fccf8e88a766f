"""What a cache holds: slots and bytes, and which tokens were merged."""

# N layers, H key-value heads

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .config import MergePolicy
from .slots import FLAT

if TYPE_CHECKING:
    from .cache import DistinctCache

PER_SLOT = frozenset(f"slots.{name}" for name in FLAT)  # tensors with a row for every slot
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Slots of each layer and head of a sequence, and its bytes.

    ``tokens`` were seen, without padding; ``window`` of them are not merged yet. ``threshold`` is
    the one given or found; None while it is to be found.

    ``bytes`` counts the memory behind every tensor held, pending queries too; of what all
    sequences share, each has its part, so that they add up to ``nbytes`` of the cache. ``full`` is
    what a DynamicCache would hold for the sequence, padding included. ``metric`` is the part that
    measures queries; it does not grow.
    """

    tokens: int
    window: int
    slots: NDArray[np.int64]  # (N, H)
    bytes: int
    full: int
    metric: int
    threshold: float | None
    sequence: int = 0
    sequences: int = 1  # of the batch
    min_length: int = 0  # tokens below which ``kept`` leaves no slots, while all is held; or 0

    @property
    def kept(self) -> float:
        """Slots and tokens of the window, as a share of the tokens seen."""
        held = float(self.slots.mean()) + self.window
        return held / self.tokens if self.tokens else 1.0

    def __str__(self) -> str:
        """A line of numbers, and the share of tokens kept by each head, layer by layer."""
        which = f"sequence {self.sequence} of {self.sequences}: " if self.sequences > 1 else ""
        lines = [
            f"{which}{self.tokens} tokens in {self.slots.mean():.1f} slots a head and a window of "
            f"{self.window}: {self.kept:.1%} kept",
            f"{self.bytes:,} bytes of {self.full:,}, {self.metric:,} of them for the metric",
        ]
        if self.min_length:
            lines.append(
                f"nothing is merged below {self.min_length} tokens; a smaller recent merges sooner"
            )
        lines.append("slots of each head as a share of the tokens outside the window:")
        share = self.slots / max(self.tokens - self.window, 1)
        for index, row in enumerate(share):
            bars = "".join(BARS[round(8 * min(part, 1.0))] for part in row)
            lines.append(f"layer {index:3d} |{bars}| {row.min():.0%} to {row.max():.0%}")
        return "\n".join(lines)


def summarise(cache: DistinctCache, sequence: int) -> Summary:
    """The summary of one sequence."""
    check_index("sequence", sequence, cache.n_sequences)
    H, seen = cache.spec.heads, cache.get_seq_length()
    rows = [
        [0] * H if layer.slots is None else layer.slots.lengths[sequence].tolist()
        for layer in cache.layers
    ]
    full = sum(
        seen * H * part.shape[-1] * part.element_size()
        for layer in cache.layers
        if layer.is_initialized
        for part in (layer.keys, layer.values)
    )
    thresholds = cache.budget.thresholds
    return Summary(
        tokens=cache.tokens(sequence) if cache.batch else seen,
        window=cache.in_window(sequence) if cache.batch else seen,
        slots=np.array(rows),
        bytes=nbytes(cache, sequence),
        full=full,
        metric=nbytes(cache, sequence, "moments."),
        threshold=thresholds[sequence] if thresholds else cache.config.threshold,
        sequence=sequence,
        sequences=cache.n_sequences,
        min_length=cache.budget.min_length(sequence) if cache.batch else 0,
    )


def nbytes(cache: DistinctCache, sequence: int | None = None, prefix: str = "") -> int:
    """Bytes of memory behind every tensor held, hidden parts of views included.

    Of one sequence, or of all; of the tensors whose name has the prefix.
    """
    sizes: dict[int, float] = {}
    shared, per_slot = _share(cache, sequence)
    for layer in cache.layers:
        pending = {f"pending.{number}": query for number, query in enumerate(layer.pending)}
        for name, tensor in (layer.tensors() | pending).items():
            if name.startswith(prefix):
                storage = tensor.untyped_storage()
                part = per_slot if name in PER_SLOT else shared
                sizes[storage.data_ptr()] = storage.nbytes() * part
    return round(sum(sizes.values()))


def _share(cache: DistinctCache, sequence: int | None) -> tuple[float, float]:
    """A sequence's part of a tensor with a row for each sequence, and for each slot."""
    if sequence is None:
        return 1.0, 1.0
    slots = cache.n_slots_each()
    return 1.0 / len(slots), slots[sequence] / max(sum(slots), 1)


def brief(cache: DistinctCache) -> str:
    """One line: the size as given, and what is held."""
    n, seen = cache.n_sequences, cache.get_seq_length()
    slots = sum(cache.n_slots_each()) / (n * cache.n_heads)
    sequences = f"{n} sequences of " if n != 1 else ""
    merge = "" if cache.config.merge == MergePolicy() else f", merge={cache.config.merge}"
    return (
        f"{type(cache).__name__}({cache.config.size}{merge}: {sequences}{seen} tokens in "
        f"{slots:.1f} slots a head and a window of {cache.layers[0].window_length}, "
        f"{cache.nbytes:,} bytes)"
    )


def check_index(name: str, number: int, size: int) -> None:
    """Raise if there is no such layer, head or sequence."""
    if not 0 <= number < size:
        raise ValueError(f"{name} must lie in 0 to {size - 1}, got {number}")


def merged(
    cache: DistinctCache, tokens: Sequence[str], layer: int, head: int, sequence: int = 0
) -> str:
    """Which tokens share a slot, a line for each slot of several; ``tokens`` are all seen."""
    check_index("layer", layer, len(cache.layers))
    check_index("head", head, cache.spec.heads)
    check_index("sequence", sequence, cache.n_sequences)
    owner = cache.layers[layer].owner
    if not cache.layers[layer].trace:
        raise ValueError("this cache kept no trace; make it with distinct_cache(..., trace=True)")
    if len(tokens) != cache.get_seq_length():
        raise ValueError(
            f"{len(tokens)} tokens were given, the cache has seen {cache.get_seq_length()}; give "
            "the text of each, in order"
        )
    slots: dict[int, list[int]] = {}
    for column, slot in enumerate([] if owner is None else owner[sequence, head].tolist()):
        slots.setdefault(slot, []).append(column)
    slots.pop(-1, None)
    lines = [
        f"slot {slot}: " + " ".join(f"{column}:{tokens[column]!r}" for column in columns)
        for slot, columns in sorted(slots.items())
        if len(columns) > 1
    ]
    return "\n".join(lines)
