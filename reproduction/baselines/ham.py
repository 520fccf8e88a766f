"""HAM: a fixed state, and a token kept only where the state was wrong about it."""

# n tokens, Q queries, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, novelty, positive, real, softmax
from .state import fraction


class HAM(TokenPeer):
    """A delta-rule state, and the tokens whose value it misses by more than ``error``.

    Hybrid associative memory (Lufkin et al. 2026): a recurrent network takes in every token, and
    attention keeps those it predicts badly. The error is ``|v - k S| / |v|`` before the state is
    corrected by ``rate k^T (v - k S)``. Nothing is merged: an item that the state has lost is kept
    again.

    We deviate: the state has no gates, and where the source learns how to mix the two, here
    attention answers a query that has a token within ``near`` of it, and the state any other. As
    for every fixed state here, the rows of the state count as slots.

    Of ``error`` from .25 to 1.1, ``rate`` from .05 to 1 and ``near`` from .3 to .9 on the recall
    task, the default finds nearly every item, from the fewest tokens that do. An error above 1
    keeps far fewer and loses some; mixing by a plain sum did worse.

    >>> ham = HAM()
    >>> ham.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [2.0], [1.0]])
    array([ 0,  1, -1])
    >>> ham.read([[1.0, 0.0]]).round(3), len(ham)
    (array([[1.]]), 4)
    """

    card = Card(
        mechanism="a delta-rule state, and attention over tokens it predicted badly",
        keeps="one matrix, and the n tokens that it missed",
        growth="with the mistakes of the state, D + n",
        size="4 D C + 4 n (D + C)",
    )

    def __init__(
        self, error: float = 0.98, rate: float = 0.05, near: float = 0.8, theta: float = 0.05
    ) -> None:
        super().__init__(theta)
        self.error = positive("error", error)
        self.rate = fraction("rate", rate)
        if not -1 <= real("near", near) <= 1:
            raise ValueError(f"near is a cosine and must lie in [-1, 1], got {near}")
        self.near = near

    def __len__(self) -> int:
        """Rows of the state, and kept tokens."""
        return len(self._state) + super().__len__() if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the kept tokens and of the state."""
        return super().nbytes + (self._state.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._state = np.zeros((width, n_values), np.float32)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        missed = np.empty(len(keys), bool)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            gap = value - key @ self._state
            missed[i] = gap @ gap > self.error**2 * (value @ value)
            self._state += self.rate * np.outer(key, gap)
        self._append(keys[missed], values[missed])
        return np.where(missed, np.arange(self._tokens, self._tokens + len(keys)), -1)

    def _answer(self, queries: Singles) -> Floats:
        gaps = novelty(queries, self._keys)
        answers = (queries @ self._state).astype(np.float64)
        close = gaps.min(axis=1, initial=np.inf) <= 1 - self.near
        if close.any():
            answers[close] = softmax(-gaps[close] / self.theta) @ self._values
        return answers
