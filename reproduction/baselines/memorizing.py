"""A queue of tokens, read by attention over the nearest few."""

# S tokens, Q queries, k neighbours, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, similarity, softmax


class Memorizing(TokenPeer):
    """The last ``budget`` tokens; a query attends to the ``k`` nearest (Wu et al. 2022).

    The memory of the Memorizing Transformer. We deviate: the search is exact, and the answer is not
    mixed with attention over a local context by a learned gate.

    ``k`` is the source's. Of 1 to 64 on the recall task none does better; the budget decides.

    >>> queue = Memorizing(budget=3, k=2)
    >>> queue.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]], [[1.0], [2.0], [4.0], [9.0]])
    array([0, 1, 2, 3])
    >>> queue.read([[0.0, 1.0]]), len(queue)
    (array([[3.]]), 3)
    """

    card = Card(
        mechanism="first in, first out; softmax over the k nearest",
        keeps="the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, k: int = 32, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.k = at_least_one("k", k)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        ids = self._append(keys, values)
        # A copy: a view would keep the evicted rows in memory.
        self._keys = self._keys[-self.budget :].copy()
        self._values = self._values[-self.budget :].copy()
        return ids

    def _answer(self, queries: Singles) -> Floats:
        similar = similarity(queries, self._keys)
        # Stable, so that of equally near tokens the oldest answers.
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, : self.k]  # (Q, k)
        weights = softmax(np.take_along_axis(similar, nearest, axis=1) / self.theta)
        mean: Floats = np.einsum("qk,qkc->qc", weights, self._values[nearest])
        return mean
