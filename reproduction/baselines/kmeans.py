"""Offline k-means: slots fitted once the whole stream is known."""

# S slots, Q queries, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, seeded, similarity, softmax
from .lloyd import Start, lloyd, means, spread


class KMeans(TokenPeer):
    """At most ``budget`` slots, the means of groups of tokens (Lloyd 1982), read by attention.

    Offline: every token is held until the first read, which fits the slots, the best of ``tries``
    fits by squared distance, and drops the tokens; later writes are refused. ``len`` and
    ``nbytes`` count what is held: tokens before the fit, slots after it.

    ``start`` is ``lloyd.spread`` (k-means++) or ``lloyd.at_random``. The defaults are the best of
    both starts with 1 and 10 tries on the recall task; the paper's number is one try at random.

    >>> kmeans = KMeans(budget=2)
    >>> kmeans.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [5.0], [3.0]])
    array([-1, -1, -1])
    >>> len(kmeans), kmeans.read([[1.0, 0.0]]).round(3), len(kmeans)
    (3, array([[2.]]), 2)
    """

    card = Card(
        mechanism="k-means over the whole stream, softmax over the means",
        keeps="every token until the first read, then the mean key and value of each group",
        growth="with the stream, L, then at the fit down to the budget B",
        size="4 S (D + C)",
    )

    def __init__(
        self,
        budget: int,
        start: Start = spread,
        tries: int = 10,
        seed: int = 0,
        theta: float = 0.05,
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        if not callable(start):
            raise TypeError(f"start must be lloyd.spread or lloyd.at_random, got {start!r}")
        self.start = start
        self.tries = at_least_one("tries", tries)
        self.seed = seeded(seed)
        self._fitted = False

    def _store(self, keys: Singles, values: Singles) -> Ids:
        if self._fitted:
            raise ValueError("k-means is fitted and its tokens are gone; write all before you read")
        self._append(keys, values)
        return np.full(len(keys), -1)

    def _answer(self, queries: Singles) -> Floats:
        if not self._fitted:
            self._fit()
        # -d^2 / 2 but for a constant: a mean of unit keys is shorter than one.
        closeness = similarity(queries, self._keys) - (self._keys**2).sum(axis=1) / 2
        return softmax(closeness / self.theta) @ self._values

    def _fit(self) -> None:
        """Put slots in place of the tokens."""
        rng = np.random.default_rng(self.seed)
        keys = self._keys.astype(np.float64)
        n_slots = min(self.budget, len(keys))
        fits = [lloyd(keys, self.start(keys, n_slots, rng)) for _ in range(self.tries)]
        _, groups = min(fits, key=lambda fit: fit[0])
        groups = np.unique(groups, return_inverse=True)[1]
        self._keys = means(keys, groups).astype(np.float32)
        self._values = means(self._values.astype(np.float64), groups).astype(np.float32)
        self._fitted = True
