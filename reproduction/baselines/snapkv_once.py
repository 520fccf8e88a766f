"""Window-voted choice, made once: what the end of a prompt attends to."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, positive, similarity, softmax
from .snapkv import fitting


class SnapKVOnce(TokenPeer):
    """SnapKV as published: the whole prompt is held, and what stays is decided at its end.

    The end is here wherever it is read: the last ``window`` tokens vote, and the read attends to
    them and to the ``budget - window`` they attend to most. It holds every token until then, and
    ``len`` and ``nbytes`` say so.

    >>> prompt = SnapKVOnce(budget=2, window=1)
    >>> prompt.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> prompt.chosen()
    array([0, 2])
    """

    card = Card(
        mechanism="the last window of tokens votes once, when the prompt ends",
        keeps="every token of the prompt; reads B",
        growth="with the prompt, L",
        size="4 L (D + C)",
    )

    def __init__(
        self, budget: int, window: int | None = None, score_theta: float = 0.1, theta: float = 0.05
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.window = fitting(window, self.budget)
        self.score_theta = positive("score_theta", score_theta)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        return self._append(keys, values)

    def chosen(self) -> Ids:
        """Places of the tokens that a read attends to, in rising order."""
        n, prefix = len(self), max(0, len(self) - self.window)
        votes = np.exp((similarity(self._keys[prefix:], self._keys) - 1) / self.score_theta)
        votes = np.tril(votes, prefix)
        scores = (votes / votes.sum(axis=1, keepdims=True)).sum(axis=0)[:prefix]
        best = np.argsort(-scores, kind="stable")[: self.budget - self.window]
        return np.concatenate([np.sort(best), np.arange(prefix, n)])

    def _answer(self, queries: Singles) -> Floats:
        chosen = self.chosen()
        return softmax(similarity(queries, self._keys[chosen]) / self.theta) @ self._values[chosen]
