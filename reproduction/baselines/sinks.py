"""Sinks and a sliding window: the first tokens and the last."""

from __future__ import annotations

import numpy as np

from .base import Card, Ids, Singles, TokenPeer, at_least_one, whole


class Sinks(TokenPeer):
    """The first ``sinks`` tokens and, up to the budget, the last ones (StreamingLLM).

    Xiao et al. 2024 found that four first tokens keep a window-attention model stable, because its
    softmax has learned to leave idle mass there; four is their setting and the default, as far as
    a budget has room. Keys here carry no such habit and no positions, so the sinks are slots lent
    to the oldest tokens.

    >>> window = Sinks(budget=2, sinks=1)
    >>> window.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> window.read([[1.0, 0.0], [0.0, 1.0]]).round(3)       # the second token has left
    array([[1.],
           [3.]])
    """

    card = Card(
        mechanism="softmax over the first tokens and a sliding window",
        keeps="the first and the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, sinks: int | None = None, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.sinks = min(4, self.budget - 1) if sinks is None else whole("sinks", sinks)
        if not 0 <= self.sinks < budget:
            raise ValueError(f"sinks must lie in [0, budget {budget}), got {sinks}")

    def _store(self, keys: Singles, values: Singles) -> Ids:
        ids = self._append(keys, values)
        if len(self._keys) > self.budget:
            window = len(self._keys) - self.budget + self.sinks
            kept = np.r_[: self.sinks, window : len(self._keys)]
            self._keys, self._values = self._keys[kept], self._values[kept]
        return ids
