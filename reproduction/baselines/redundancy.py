"""Key-similarity eviction: the older of the two most similar tokens leaves."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids
from .evicting import Bools, EvictingPeer


class Redundancy(EvictingPeer):
    """A budget of tokens; of the two most similar ones the older leaves.

    The strongest form we know of eviction by key similarity, the family of KeyDiff (Park et al.
    2025): that scores a key against the mean of all (see `KeyDiff`), this one against its nearest
    neighbour, so that a token leaves when a newer one says the same. It mirrors the cache, which
    keeps the older of two; unlike the cache it must be told a budget, its one setting.

    Each token carries the similarity of its nearest newer token and the place of that one. A token
    that leaves makes some of these too high; such a bound is mended when it becomes the highest.

    >>> distinct = Redundancy(budget=2)
    >>> distinct.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> distinct.read([[1.0, 0.0], [0.0, 1.0]]).round(3)     # the second token has left
    array([[1.],
           [3.]])
    """

    card = Card(
        mechanism="of the two most similar tokens the older leaves",
        keeps="tokens unlike each other",
        growth="to the budget B",
        size="4 B (D + C) + 16 B",
    )

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of what each knows of its nearest."""
        return super().nbytes + (self._bound.nbytes + self._twin.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._bound = np.empty(0)
        self._twin: Ids = np.empty(0, np.int64)  # -1: it has left

    def _settle(self, keys: Floats, before: int) -> Bools:
        n_new = len(keys) - before
        alive = np.ones(len(keys), bool)
        bound = np.concatenate([self._bound, np.full(n_new, -np.inf)])
        twin = np.concatenate([self._twin, np.full(n_new, -1)])
        similar = keys[before:] @ keys.T  # (l, S + l)
        for t in range(n_new):
            newest = before + t
            row = similar[t, :newest]
            closer = np.flatnonzero(row > bound[:newest])
            bound[closer], twin[closer] = row[closer], newest
            if newest >= self.budget:
                gone = most_redundant(keys[: newest + 1], bound, twin, alive)
                alive[gone], bound[gone] = False, -np.inf
                similar[t + 1 :, gone] = -np.inf
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        self._bound, self._twin = bound[alive], np.where(twin < 0, -1, place[twin])[alive]
        return alive


def most_redundant(keys: Floats, bound: Floats, twin: Ids, alive: Bools) -> int:
    """The token with the nearest newer neighbour, the oldest of equals; mends bounds on its way.

    >>> keys = np.eye(2)[[0, 1, 1]]
    >>> bound, twin = np.array([0.0, 1.0, -np.inf]), np.array([1, 2, -1])
    >>> most_redundant(keys, bound, twin, np.ones(3, bool))
    1
    """
    while True:
        first = int(bound.argmax())
        if twin[first] >= 0 and alive[twin[first]]:
            return first
        similar = np.where(alive[first + 1 : len(keys)], keys[first + 1 :] @ keys[first], -np.inf)
        nearest = int(similar.argmax())
        bound[first], twin[first] = similar[nearest], first + 1 + nearest
