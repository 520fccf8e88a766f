"""Kept records: their vectors in a cache, and what each of them was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...memory import Cache, SlotTable
from ...rule import Keys, unit
from ...slots import Bools, Ints
from ..keys import keys_of, novelty_beside
from .inline import Inline


class Placed(NamedTuple):
    """Slots that rows went to (-1: none), whether they opened them, and how like them they are."""

    slots: Ints
    opened: Bools
    similarity: NDArray[np.float64]


class Shelf:
    """A cache without values, and beside it the number and the record of each slot."""

    def __init__(self, cache: Cache, held: dict[int, tuple[int, Any]] | None = None) -> None:
        self._cache = cache
        self.held = {} if held is None else held
        self._inline: Inline | None = None

    @property
    def cache(self) -> Cache:
        """The cache, with every row written."""
        if self._inline is not None:
            self._inline.flush()
        return self._cache

    @property
    def seen(self) -> int:
        """Rows so far."""
        return self._cache.seen + (self._inline.waiting if self._inline else 0)

    @property
    def width(self) -> int | None:
        """Numbers in a row; None until the first."""
        return self._inline.width if self._inline else self._cache.width

    @property
    def bounded(self) -> bool:
        """Whether slots may be evicted; rows are then written in batches only."""
        return self._cache.concentration.bounded

    def place(self, row: NDArray[Any]) -> tuple[int, float | None] | None:
        """Slot of one row and its similarity to it, None if it opened it; None for a bad row."""
        return self._one_by_one(len(row)).place(row)

    def repeat(self, slot: int) -> None:
        """A row equal to the key of this slot came."""
        assert self.width is not None
        self._one_by_one(self.width).repeat(slot)

    def write(self, rows: NDArray[Any]) -> Placed:
        """Write rows as the cache does."""
        cache = self.cache
        # A single row evicts nothing that it repeats, for then it opens nothing.
        born, before = cache.born, self._before() if len(rows) > 1 else None
        slots = cache.write(rows)
        return self._placed(slots, born, rows, before)

    def absorb(self, other: Shelf) -> Placed:
        """Take in another's slots, and what they are; rows come in the order of its slots."""
        cache, theirs = self.cache, other.cache
        first, born, before, table = cache.seen, cache.born, self._before(), theirs.slots
        slots = cache.absorb(theirs)
        placed = self._placed(slots, born, table.keys, before)
        for slot, old, opened in zip(
            slots.tolist(), table.ids.tolist(), placed.opened, strict=True
        ):
            number, record = other.held[old]
            if opened:
                self.held[slot] = (first + number, record)
        return placed

    def prune(self) -> None:
        """Forget what was evicted."""
        if self.bounded and len(self.held) > len(self._cache):
            for slot in self.held.keys() - set(self._cache._slots["ids"].tolist()):
                del self.held[slot]

    def _one_by_one(self, width: int) -> Inline:
        if self._inline is None:
            self._inline = Inline(self._cache, width)
        return self._inline

    def _before(self) -> SlotTable | None:
        """Slots as they are, if some may be gone after a write."""
        return self._cache.slots if self.bounded else None

    def _placed(
        self, slots: Ints, born: int, rows: NDArray[Any], before: SlotTable | None
    ) -> Placed:
        if self._inline is not None:
            self._inline.refresh()
        opened = np.zeros(len(slots), bool)
        new, first = np.unique(slots, return_index=True)
        opened[first[new >= born]] = True
        similarity = np.full(len(slots), np.nan)
        again = np.flatnonzero(~opened & (slots >= 0))
        if len(again) == 0:
            return Placed(slots, opened, similarity)
        found = self._keys(before, slots[opened], rows[opened], slots[again])
        # Slot and similarity are the law's; a row within tau may be an ulp off the threshold.
        novelty = novelty_beside(_units(rows[again]), found)
        similarity[again] = np.maximum(1 - novelty, 1 - self._cache.concentration.tau)
        return Placed(slots, opened, similarity)

    def _keys(
        self, before: SlotTable | None, new: Ints, opened: NDArray[Any], wanted: Ints
    ) -> Keys:
        """Keys of slots that rows went to, some of which may be gone by now."""
        if before is None:
            return keys_of(self._cache, wanted)
        keys = _units(opened)
        keys = np.concatenate([before.keys, keys]) if len(before) else keys
        return keys[np.searchsorted(np.concatenate([before.ids, new]), wanted)]


def _units(rows: NDArray[Any]) -> Keys:
    """Rows as a cache compares them."""
    return unit(rows).astype(np.float32) if len(rows) else rows.astype(np.float32)
