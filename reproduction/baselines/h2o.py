"""Heavy hitters: the tokens that drew the most attention are kept."""

# l tokens of a block, S kept before it, n kept now

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, positive, similarity, whole

# Small tables: fewer columns per token, and no threads waking up in BLAS for each product.
_BLOCK = 32


class H2O(TokenPeer):
    """A budget of tokens; the one with the least accumulated attention leaves (Zhang et al. 2023).

    Each token attends, at temperature ``score_theta``, to the kept tokens and itself, and each of
    those adds its share to its score. The ``recent`` last tokens cannot leave; the published form
    is half the budget, the default. A token that leaves in its own step gets id -1.

    We deviate: one head, the key serves as the query, and a model has no ``score_theta`` to set.
    Of the three settings in study ``recall``, the default .1 without a recent window does best; the
    paper's own number appears at .145, and the published form does worse than either.

    >>> heavy = H2O(budget=2, recent=0)
    >>> heavy.write([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0], [2.0]])
    array([0, 1, 2])
    >>> heavy.read([[1.0, 0.0]]).round(3), len(heavy)
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token with the least accumulated attention leaves",
        keeps="tokens attended most so far, and the most recent",
        growth="to the budget B",
        size="4 B (D + C) + 8 B",
    )

    def __init__(
        self,
        budget: int,
        score_theta: float = 0.1,
        recent: int | None = None,
        theta: float = 0.05,
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.score_theta = positive("score_theta", score_theta)
        self.recent = self.budget // 2 if recent is None else whole("recent", recent)
        if not 0 <= self.recent <= budget:
            raise ValueError(f"recent must lie in [0, budget {budget}], got {recent}")

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of their scores."""
        return super().nbytes + (self._scores.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._scores = np.empty(0)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        ids = np.arange(self._tokens, self._tokens + len(keys))
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            ids[block][self._settle(keys[block], values[block])] = -1
        return ids

    def _settle(self, keys: Singles, values: Singles) -> Ids:
        """Take in a block and return the places in it of tokens that left in their own step."""
        before = len(self._keys)
        self._append(keys, values)
        # A token's similarity to itself is 1, the largest, so no exponent is positive.
        weights = np.exp((similarity(keys, self._keys) - 1) / self.score_theta)  # (l, S + l)
        kept, self._scores, left = scan(weights, self._scores, self.budget, self.recent)
        self._keys, self._values = self._keys[kept], self._values[kept]
        return left - before


def scan(weights: Floats, scores: Floats, budget: int, recent: int) -> tuple[Ids, Floats, Ids]:
    """Which columns are kept, their scores, and which left in their own step.

    Row t of ``weights`` (l, S + l) is what token t, column S + t, grants each column.

    >>> scan(np.array([[1.0, 1.0], [3.0, 1.0]]), np.empty(0), budget=1, recent=0)
    (array([0]), array([1.75]), array([1]))
    """
    n = len(scores)
    room = min(budget + 1, n + len(weights))
    kept, held = np.arange(room), np.zeros(room)
    held[:n] = scores
    left = []
    for column, row in enumerate(weights, start=n):
        kept[n], held[n] = column, 0.0
        n += 1
        shares = row[kept[:n]]
        held[:n] += shares / shares.sum()
        if n > budget:
            loser = int(held[: n - recent].argmin())
            if kept[loser] == column:
                left.append(column)
            n -= 1
            kept[loser:n] = kept[loser + 1 : n + 1]
            held[loser:n] = held[loser + 1 : n + 1]
    return kept[:n], held[:n].copy(), np.array(left, np.int64)
