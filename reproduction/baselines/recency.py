"""A sliding window: the last tokens are kept."""

from __future__ import annotations

from .base import Card, Ids, Singles, TokenPeer, at_least_one


class Recency(TokenPeer):
    """The last ``budget`` tokens, read by attention (sliding-window attention).

    The eviction baseline of the paper, and the window of StreamingLLM (Xiao et al. 2023) without
    its sinks. The budget is its one setting.

    >>> window = Recency(budget=2)
    >>> window.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [2.0]])
    array([0, 1, 2])
    >>> window.read([[1.0, 0.0]]), len(window)          # the first token has left
    (array([[2.]]), 2)
    """

    card = Card(
        mechanism="softmax over a sliding window",
        keeps="the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        ids = self._append(keys, values)
        # A copy: a view would keep the evicted rows in memory.
        self._keys = self._keys[-self.budget :].copy()
        self._values = self._values[-self.budget :].copy()
        return ids
