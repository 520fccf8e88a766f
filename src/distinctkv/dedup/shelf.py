"""Kept records: their vectors in a cache, and what each of them was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache, SlotTable
from ..keys import keys_of, novelty_beside
from ..rule import Keys, unit
from ..slots import Bools, Ints
from ..whole import Whole
from .inline import Inline
from .screened import Screened


class Placed(NamedTuple):
    """Slots that rows went to (-1: none), whether they opened them, and how like them they are."""

    slots: Ints
    opened: Bools
    similarity: NDArray[np.float64]


class Shelf:
    """A cache without values, and beside it the number and the record of each slot."""

    def __init__(self, cache: Cache, held: dict[int, tuple[int, Any]] | None = None) -> None:
        self.cache, self.bounded = cache, cache.concentration.bounded
        self.held = {} if held is None else held
        self.whole = Whole(cache)
        self._inline: Inline | None = None
        self._screened: Screened | None = None

    @property
    def seen(self) -> int:
        """Rows so far."""
        return self.cache.seen

    @property
    def width(self) -> int | None:
        """Numbers in a row; None until the first."""
        return self.cache.width

    def place(self, row: NDArray[Any]) -> tuple[int, float | None] | None:
        """Slot of one row and its similarity to it, None if it opened it; None for a bad row."""
        inline = self._one_by_one(len(row))
        placed = inline.place(row)
        if inline.gone is not None:
            del self.held[inline.gone]
            inline.gone = None
        return placed

    def repeat(self, slot: int) -> None:
        """A row equal to the key of this slot came."""
        assert self.width is not None
        self._one_by_one(self.width).repeat(slot)

    def write(self, rows: NDArray[Any]) -> Placed:
        """Write rows as the cache does."""
        cache = self.cache
        self._screens(rows.shape[1])
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
        if self.bounded and len(self.held) > len(self.cache):
            for slot in self.held.keys() - set(self.cache._slots["ids"].tolist()):
                del self.held[slot]

    def _one_by_one(self, width: int) -> Inline:
        screened = self._screens(width)
        if self._inline is None:
            self._inline = Inline(self.cache, screened)
        return self._inline

    def _screens(self, width: int) -> Screened:
        """What spares most comparisons; a cache that evicts uses it for single rows only."""
        if self._screened is None or self._screened.screen.width != width:
            self._inline = None
            self._screened = Screened(self.cache.concentration.tau, width)
            if not self.bounded:
                self.cache._engine = self._screened.engine
        return self._screened

    def _before(self) -> SlotTable | None:
        """Slots as they are, if some may be gone after a write."""
        return self.cache.slots if self.bounded else None

    def _placed(
        self, slots: Ints, born: int, rows: NDArray[Any], before: SlotTable | None
    ) -> Placed:
        if self._screened is not None:
            self._screened.stale = True
            self._screened.known = 0 if self.bounded else self._screened.known
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
        similarity[again] = np.maximum(1 - novelty, 1 - self.cache.concentration.tau)
        return Placed(slots, opened, similarity)

    def _keys(
        self, before: SlotTable | None, new: Ints, opened: NDArray[Any], wanted: Ints
    ) -> Keys:
        """Keys of slots that rows went to, some of which may be gone by now."""
        if before is None:
            return keys_of(self.cache, wanted)
        keys = _units(opened)
        keys = np.concatenate([before.keys, keys]) if len(before) else keys
        return keys[np.searchsorted(np.concatenate([before.ids, new]), wanted)]


def _units(rows: NDArray[Any]) -> Keys:
    """Rows as a cache compares them."""
    return unit(rows).astype(np.float32) if len(rows) else rows.astype(np.float32)
