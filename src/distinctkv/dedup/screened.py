"""An engine that compares in full only what a screen lets pass: the slot ids of the rule.

Where most records are distinct, all time goes into comparing each of them with all that were kept.
A short product (`screen.py`) rules out nearly all of these pairs, and the law decides the others.
"""

# L rows of a chunk, S slots before it, D key size; a pair is a row, a slot and their similarity

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engines import Engine, blocked
from ..engines.bounds import SINGLE
from ..keys import novelty_beside
from ..policy import Concentration
from ..rule import Floats, Keys
from ..slots import Bools, Decision, Ints, Slots
from .screen import Heads, Screen

CHUNK = 1024
PAIRS = 4096  # gathered at a time
MOST = 256  # pairs of a row, on average, beyond which a screen is none
BLOCK = 256  # slots at a time, so that bounds stay in a processor's cache


class Pairs(NamedTuple):
    """Rows, the places of what they are paired with, and how similar they are."""

    rows: Ints
    others: Ints
    scores: NDArray[np.float32]

    def where(self, chosen: Bools) -> Pairs:
        """Some of them."""
        return Pairs(self.rows[chosen], self.others[chosen], self.scores[chosen])


class Screened:
    """Decides chunks for a cache of first-occurrence keys, cosines and no budget.

    Rows of slots stay in the order of their ids, as the heads of the screen are.
    """

    def __init__(self, tau: float, width: int) -> None:
        self.tau, self.screen = tau, Screen(tau, width)
        self.error = (width + 16) * SINGLE
        # Above this similarity no other slot can be nearer (`engines.geometry.Geometry.of`).
        self.sure = sqrt(max(0.0, 1 - tau / 2) + 8 * SINGLE) + 1e-6 + self.error
        self.known = 0  # slots whose heads are there
        self.stale = True  # whether the cache may have changed since

    @property
    def engine(self) -> Engine:
        """It, as a cache takes it."""
        return Engine("screened", self._chunk, self.decide)

    def refresh(self, slots: Slots) -> None:
        """Take note of the slots that there are; while none is gone they are in order."""
        screen, self.stale = self.screen, False
        if slots.n == 0:
            return
        if slots.born == slots.n and (slots["ids"] != np.arange(slots.n)).any():
            slots.take(np.argsort(slots["ids"]))
            self.known = 0
        if screen.due(slots.n, slots.born):
            screen.fit(slots["keys"], slots.born)
        elif screen.ready and slots.n > self.known:
            screen.put(screen.heads(slots["keys"][self.known :]), self.known)
        self.known = slots.n

    def decide(
        self, slots: Slots, concentration: Concentration, keys: Keys, worths: Floats
    ) -> Decision:
        """Slots of a chunk of rows, as `rule.Rule` would choose them one by one."""
        self.refresh(slots)
        if not self.screen.worthwhile:
            return blocked.decide(slots, concentration, keys, worths)
        columns = slots.repeats.find(slots["keys"], keys, always=True)
        assert columns is not None
        novelty = np.full(len(keys), np.inf)
        rest = np.flatnonzero(columns < 0)
        heads = self.screen.heads(keys[rest])
        if (near := self._near(heads, slots.n)) is None:
            return blocked.decide(slots, concentration, keys, worths)
        certain = self._old(slots["keys"], keys, rest[near[0]], near[1], columns, novelty)
        left = ~certain[rest]
        opened = np.zeros(len(keys), bool)
        if (columns < 0).any():
            self._meet(keys, heads[left], rest[left], columns, novelty, opened)
            inner = columns < 0
            columns[inner] = slots.n - 1 - columns[inner]
        temperature = blocked.warm(slots.temperature, opened, concentration.rate)
        return Decision(columns, opened, temperature)

    def _chunk(self, slots: Slots) -> int:
        return CHUNK if self.screen.worthwhile else blocked.chunk(slots)

    def _near(self, heads: Heads, n_slots: int) -> tuple[Ints, Ints] | None:
        """Rows and slots that may be repeats of each other; None if they are too many."""
        rows, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        room = MOST * len(heads)
        for start in range(0, n_slots, BLOCK):
            bounds = self.screen.bounds(heads, slice(start, min(start + BLOCK, n_slots)))
            row, other = _passing(bounds, self.screen.cut)
            rows.append(row)
            others.append(other + start)
            room -= len(row)
            if room < 0:
                return None
        return np.concatenate(rows), np.concatenate(others)

    def _old(
        self, slots: Keys, keys: Keys, rows: Ints, others: Ints, columns: Ints, novelty: Floats
    ) -> Bools:
        """Note the slots that rows repeat, by the law; which rows no further slot could change."""
        pairs = _scored(keys, slots, rows, others)
        best = np.full(len(keys), -1.0)
        np.maximum.at(best, pairs.rows, pairs.scores)
        floor = np.maximum(best, self.screen.low) - 2 * self.error
        pairs = pairs.where(pairs.scores >= floor[pairs.rows])
        certain = pairs.scores > self.sure
        columns[pairs.rows[certain]] = pairs.others[certain]
        pairs = pairs.where(~certain)
        found, order = self._by_law(keys, slots, pairs)
        again, first = np.unique(pairs.rows[order], return_index=True)
        columns[again], novelty[again] = pairs.others[order[first]], found[order[first]]
        return np.asarray(best > self.sure)

    def _meet(
        self,
        keys: Keys,
        heads: Heads,
        rest: Ints,
        columns: Ints,
        novelty: Floats,
        opened: Bools,
    ) -> None:
        """Let rows know what rows before them in the chunk have opened: -1 - the place of those."""
        new = columns[rest] < 0
        fresh = rest[new]
        columns[fresh], opened[fresh] = -1 - fresh, True
        row, other = _passing(heads @ heads[new].T, self.screen.cut)
        row, other = rest[row], fresh[other]
        before = other < row
        pairs = _scored(keys, keys, row[before], other[before])
        floor = np.maximum(1 - novelty, self.screen.low) - 2 * self.error
        pairs = pairs.where(pairs.scores >= floor[pairs.rows])
        found, order = self._by_law(keys, keys, pairs)
        told = (column[order].tolist() for column in (pairs.rows, pairs.others, found))
        # Rows come in order, so that whether an earlier one has opened is known.
        for here, there, far in zip(*told, strict=True):
            if opened[there] and far < novelty[here]:
                columns[here], novelty[here], opened[here] = -1 - there, far, False

    def _by_law(self, keys: Keys, others: Keys, pairs: Pairs) -> tuple[Floats, Ints]:
        """Novelty of pairs, and those that are repeats: by row, the nearest and oldest first."""
        found = np.empty(len(pairs.rows))
        for part in _parts(len(found)):
            found[part] = novelty_beside(keys[pairs.rows[part]], others[pairs.others[part]])
        order = np.lexsort((pairs.others, found, pairs.rows))
        return found, order[found[order] <= self.tau]


def _passing(bounds: Heads, cut: float) -> tuple[Ints, Ints]:
    """Rows and columns of bounds that do not rule out."""
    row, column = np.divmod(np.flatnonzero(bounds >= cut), bounds.shape[1])
    return row, column


def _scored(keys: Keys, others: Keys, rows: Ints, places: Ints) -> Pairs:
    """Pairs with their similarity in float32."""
    scores = np.empty(len(rows), np.float32)
    for part in _parts(len(rows)):
        scores[part] = np.einsum("ij,ij->i", keys[rows[part]], others[places[part]])
    return Pairs(rows, places, scores)


def _parts(n_pairs: int) -> Iterator[slice]:
    return (slice(start, start + PAIRS) for start in range(0, n_pairs, PAIRS))
