"""The classics of cache eviction, over slots: least recently used, least frequently used."""

from __future__ import annotations

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from .base import Card, Ids, Peer, Singles, at_least_one, positive


class _Budgeted(Peer):
    """The cache under a budget; how fast usage decays is what tells one eviction from another."""

    def __init__(self, budget: int, tau: float, decay: float, theta: float) -> None:
        super().__init__()
        self.theta = positive("theta", theta)
        self._cache = Cache(Concentration.fixed(tau, at_least_one("budget", budget), decay=decay))

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots, their counters and room for growth included."""
        return self._cache.nbytes

    def _start(self, width: int, n_values: int) -> None:
        """The cache starts itself."""

    def _store(self, keys: Singles, values: Singles) -> Ids:
        return self._cache.write(keys, values)

    def _answer(self, queries: Singles) -> Floats:
        return self._cache.read(queries, self.theta).astype(np.float64)


class LRU(_Budgeted):
    """Slots open on novelty, as in the cache; over budget, the least recently used leaves.

    Textbook paging. It is the cache with a usage so short that only the last use counts. The
    budget is its setting; ``tau`` is the cache's, .3 as in study ``recall``.

    >>> recent = LRU(budget=2)
    >>> recent.write(np.eye(3)[[0, 1, 0, 2]], np.eye(3)[[0, 1, 0, 2]])
    array([0, 1, 0, 2])
    >>> recent.read(np.eye(3)[:1]).round(3)                  # the second slot has left
    array([[1., 0., 0.]])
    """

    card = Card(
        mechanism="slots open on novelty; the least recently used leaves",
        keeps="the distinct items used last",
        growth="with distinct items, to the budget B",
        size="4 B (D + C) + 40 B, and room to grow",
    )

    def __init__(self, budget: int, tau: float = 0.3, theta: float = 0.05) -> None:
        super().__init__(budget, tau, 1e-6, theta)


class LFU(_Budgeted):
    """Slots open on novelty, as in the cache; over budget, the least frequently used leaves.

    A use counts ``decay`` times less with each token that follows. At 1 this is textbook LFU, which
    holds on to what was frequent long ago; at .98, the default, it is the paper's own budget
    (eq. 6) and the cache's. A slot stays at least for the step that opened it.

    >>> frequent = LFU(budget=2, decay=1.0)
    >>> frequent.write(np.eye(3)[[0, 0, 1, 2]], np.eye(3)[[0, 0, 1, 2]])
    array([0, 0, 1, 2])
    >>> frequent.read(np.eye(3)[:1]).round(3)                # the second slot has left
    array([[1., 0., 0.]])
    """

    card = Card(
        mechanism="slots open on novelty; the least used leaves, old uses counting less",
        keeps="the distinct items used most",
        growth="with distinct items, to the budget B",
        size="4 B (D + C) + 40 B, and room to grow",
    )

    def __init__(
        self, budget: int, tau: float = 0.3, decay: float = 0.98, theta: float = 0.05
    ) -> None:
        super().__init__(budget, tau, decay, theta)
