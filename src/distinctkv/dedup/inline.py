"""One row at a time, as a cache would take it: decided and written at once."""

# S slots, D key size

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache
from ..inputs import faults
from ..rule import Keys, distances, unit
from ..slots import Ints
from .compiled import PATIENCE, Compiled, compiled
from .screen import Heads
from .screened import Screened

Found = tuple[int, float, Keys, Heads | None]
FEW = 512  # slots beyond which NumPy is the faster way to compare in full


class Inline:
    """Writes single rows to a cache of first-occurrence keys and cosines that forgets no usage."""

    def __init__(self, cache: Cache, screened: Screened) -> None:
        self._cache, self._slots, self._screened = cache, cache._slots, screened
        self._screen, tau = screened.screen, cache.concentration.tau
        self._far = 2 * tau if tau < 2 else inf
        self._patience = PATIENCE
        self._compiled: Compiled | None = None
        self._first, self._near = np.arange(FEW), np.empty(FEW, np.int64)
        self._key = np.empty(self._screen.width, np.float32)
        self._head = np.empty((1, 0), np.float32)
        self.gone: int | None = None  # the slot that the last row put out

    def place(self, row: NDArray[Any]) -> tuple[int, float | None] | None:
        """Id of a row's slot and its similarity to it, None if it opens it; None for a bad row."""
        slots, self.gone = self._slots, None
        self._cache._guard.check()
        self._look()
        found = self._compiled_find(row)
        if found is None:
            if (plain := _key(row)) is None:
                return None
            found = self._find(plain)
        place, squared, key, head = found
        if place < 0:
            if self._cache.width is None:
                slots.start(len(key), self._cache._values.fix("none", np.empty((0, 0))))
            place = self._open(key, head)
            self._use(place, opened=True)
            return int(slots.columns["ids"][place]), None
        self._use(place, opened=False)
        # A row within tau may be an ulp off the threshold.
        similarity = max(1 - min(squared / 2, 2.0), self._screen.low)
        return int(slots.columns["ids"][place]), similarity

    def repeat(self, slot: int) -> None:
        """A row equal to the key of this slot came; nothing was ever evicted."""
        self._look()
        self._use(slot, opened=False)

    def _look(self) -> None:
        """Have the heads of all slots, in their order, and what numba compiles if it may pay."""
        self._patience -= 1
        if self._patience == 0 and (made := compiled()) is not None:
            self._compiled = made
        if self._screened.stale or self._screen.due(self._slots.n, self._slots.born):
            self._screened.refresh(self._slots)

    def _use(self, row: int, *, opened: bool) -> None:
        """Count a use, and warm or cool."""
        cache, slots = self._cache, self._slots
        columns, rate = slots.columns, cache.concentration.rate
        cache._guard.dirty = True
        columns["usage"][row] += slots.worth
        columns["count"][row] += 1
        columns["last_seen"][row] = cache.seen
        slots.temperature = (1 - rate) * slots.temperature + rate * opened
        slots.tokens += 1
        cache.seen += 1
        cache._guard.dirty = False

    def _open(self, key: Keys, head: Heads | None) -> int:
        """A slot for a key, if need be in the place of the one used least."""
        slots, row = self._slots, self._slots.n
        self._cache._guard.dirty = True
        if row + 1 > self._cache.concentration.base:
            row = self._weakest()
            self.gone = int(slots["ids"][row])
            slots.repeats.forget()
            slots.proposer = None
        else:
            slots.reserve(row + 1)
            slots.n = row + 1
        columns = slots.columns
        columns["keys"][row], columns["ids"][row] = key, slots.born
        columns["usage"][row] = columns["count"][row] = 0
        columns["first_seen"][row] = self._cache.seen
        slots.born += 1
        if head is not None:
            self._screen.put(head, row)
        self._screened.known = slots.n
        return row

    def _weakest(self) -> int:
        """Row of the least used slot: of equals the longest idle, then the oldest."""
        slots = self._slots
        poor = np.flatnonzero(slots["usage"] == slots["usage"].min())
        order = np.lexsort((slots["ids"][poor], slots["last_seen"][poor]))
        return int(poor[order[0]])

    def _compiled_find(self, row: NDArray[Any]) -> Found | None:
        """The same as `_find`, compiled; None if it is not for this row."""
        slots, screen = self._slots, self._screen
        if self._compiled is None or slots.n == 0:
            return None
        if self._head.shape[1] != len(screen.table):
            self._head = np.empty((1, len(screen.table)), np.float32)
        columns = slots.columns
        near = self._near if screen.ready else self._first
        place, squared = self._compiled.find(
            row.astype(np.float64),
            (screen.turn, screen.table, screen.margin, screen.cut),
            (columns["keys"], columns["ids"], slots.n),
            self._far,
            (self._key, self._head[0], near),
        )
        head = self._head if screen.ready else None
        return None if place == -2 else (place, squared, self._key, head)

    def _find(self, key: Keys) -> Found:
        """Place of the slot that a key repeats (-1: none), their distance, the key, its head."""
        slots, screen = self._slots, self._screen
        head = screen.heads(key[None]) if screen.ready else None
        near = self._likely(key, head) if slots.n else np.empty(0, np.int64)
        if len(near) == 0:
            return -1, inf, key, head
        squared = distances(key, slots["keys"][near])
        least = squared.min()
        equal = near[squared == least]
        place = int(equal[slots["ids"][equal].argmin()])
        return (-1 if least > self._far else place), float(least), key, head

    def _likely(self, key: Keys, head: Heads | None) -> Ints:
        """Rows of slots that may be the nearest, if the key is no novelty."""
        slots, screen, error = self._slots, self._screen, self._screened.error
        if head is None:
            near = np.arange(slots.n)
        else:
            near = (screen.bounds(head, slice(slots.n))[0] >= screen.cut).nonzero()[0]
        if len(near) < 2 or not screen.usable:
            return near
        few = 4 * len(near) < slots.n
        scores = slots["keys"][near] @ key if few else (slots["keys"] @ key)[near]
        return near[scores >= max(screen.low, float(scores.max())) - 2 * error]


def _key(row: NDArray[Any]) -> Keys | None:
    """A row as a cache stores it, bit for bit; None if it cannot be a key."""
    wide = row.astype(np.float64)[None]
    square = float(np.einsum("ij,ij->i", wide, wide)[0])
    if not 1e-200 < square < 1e200 or len(row) > 4096:
        if faults(row[None], "cosine")[0]:
            return None
        wide = unit(row)
    else:
        wide /= sqrt(square)
    return np.asarray(wide[0].astype(np.float32) + np.float32(0))
