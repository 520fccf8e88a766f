"""A differentiable neural dictionary: keys that are there are updated, others appended."""

# S slots, Q queries, k neighbours, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, positive, similarity
from .state import fraction

# A repeat of a key in float32: 1 - cosine no larger than rounding makes it.
_SAME = 1e-6


class NEC(TokenPeer):
    """A dictionary of ``budget`` keys; the least recently used leaves (Pritzel et al. 2017).

    The memory of neural episodic control. A key that is already there moves its value a part
    ``rate`` of the way; any other is appended. A query is answered by its ``k`` nearest slots,
    weighted by ``1 / (d^2 + delta)``. A slot is used when it is among the ``k`` nearest to a key
    that is written, for the source looks up each state before it writes it.

    We deviate: the search is exact, keys and values are not trained, and a read counts as no use,
    so that it changes nothing. The id of a token is its row, which a later token may take over.

    The source has ``k`` = 50, ``rate`` .1 and ``delta`` .001. Of 1, 4, 10 and 50 neighbours on the
    recall task at budgets of 64 to 256, one does best: with more, distant slots count as used. As
    noise makes every key new, the dictionary holds repeats side by side.

    >>> dictionary = NEC(budget=8, k=1, rate=0.5)
    >>> dictionary.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [5.0], [2.0]])
    array([0, 1, 0])
    >>> dictionary.read([[1.0, 0.0]]), len(dictionary)
    (array([[1.5]]), 2)
    """

    card = Card(
        mechanism="an exact repeat updates its slot; mean of the k nearest by inverse distance",
        keeps="keys that differ at all, the least recently used leaving first",
        growth="with the keys that differ at all, to the budget B",
        size="4 S (D + C) + 8 S",
    )

    def __init__(self, budget: int, k: int = 1, rate: float = 0.1, delta: float = 1e-3) -> None:
        super().__init__()
        self.budget = at_least_one("budget", budget)
        self.k = at_least_one("k", k)
        self.rate = fraction("rate", rate)
        self.delta = positive("delta", delta)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values, and of the time each was last used."""
        return super().nbytes + (self._used.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._used = np.empty(0, np.int64)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        n = len(self._keys)
        room = min(n + len(keys), self.budget) - n
        self._append(np.zeros_like(keys[:room]), np.zeros_like(values[:room]))
        self._used = np.concatenate([self._used, np.zeros(room, np.int64)])
        ids = np.empty(len(keys), np.int64)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            row, known = self._place(key, n, now=self._tokens + i)
            if known:
                self._values[row] += self.rate * (value - self._values[row])
            else:
                self._keys[row], self._values[row] = key, value
                n = max(n, row + 1)
            ids[i] = row
        self._keys, self._values = self._keys[:n].copy(), self._values[:n].copy()
        self._used = self._used[:n].copy()
        return ids

    def _place(self, key: Singles, n: int, now: int) -> tuple[int, bool]:
        """The row for a key, one of the first ``n`` or the next, and whether the key is there."""
        similar = similarity(key[None], self._keys[:n])[0]
        near = np.argpartition(-similar, self.k)[: self.k] if n > self.k else np.arange(n)
        self._used[near] = now
        nearest = int(similar.argmax()) if n else -1
        if n and 1 - similar[nearest] <= _SAME:
            return nearest, True
        row = n if n < self.budget else int(self._used.argmin())
        self._used[row] = now
        return row, False

    def _answer(self, queries: Singles) -> Floats:
        gaps = np.maximum(2 - 2 * similarity(queries, self._keys), 0)  # (Q, S), squared
        near = np.argsort(gaps, axis=1, kind="stable")[:, : self.k]  # (Q, k)
        weights = 1 / (np.take_along_axis(gaps, near, axis=1) + self.delta)
        weights /= weights.sum(axis=1, keepdims=True)
        mean: Floats = np.einsum("qk,qkc->qc", weights, self._values[near])
        return mean
