"""Hash buckets: a query reads the tokens that hash as it does."""

# S tokens, R rounds, H half the buckets, Q queries, D key size, C value size

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, seeded, similarity, softmax, whole

_MOST = 2**15  # buckets that 16 bits can number


class Reformer(TokenPeer):
    """Every token kept, hashed ``rounds`` times; a query attends to tokens that share a bucket.

    Reformer (Kitaev et al. 2020): a bucket is the largest of ``[x R; -x R]`` under a random
    rotation R. It saves time, not memory. We deviate: buckets are not cut into chunks of equal
    size, and a query whose buckets are empty is answered with zeros, where a token of the source
    could still attend to itself.

    Of 4 to 64 buckets and 1 to 8 rounds on the recall task, four rounds find every item whatever
    the buckets, one round does not; 16 buckets keep the rotations small.

    >>> reformer = Reformer(buckets=4, rounds=8)
    >>> reformer.write([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> reformer.read([[1.0, 0.0]]).round(3), len(reformer)
    (array([[1.]]), 3)
    """

    card = Card(
        mechanism="hash buckets, softmax within the buckets of the query",
        keeps="every token and its buckets",
        growth="with the stream, L",
        size="4 L (D + C) + 2 L rounds + 2 D buckets rounds",
    )

    def __init__(
        self, buckets: int = 16, rounds: int = 4, seed: int = 0, theta: float = 0.05
    ) -> None:
        super().__init__(theta)
        self.buckets = whole("buckets", buckets)
        if not 2 <= buckets <= _MOST or buckets % 2:
            raise ValueError(f"buckets must be even, from 2 to {_MOST}, got {buckets}")
        self.rounds = at_least_one("rounds", rounds)
        self.seed = seeded(seed)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, of their buckets, and of the rotations."""
        return super().nbytes + (self._bucket.nbytes + self._turns.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        shape = self.rounds, width, self.buckets // 2
        self._turns = np.random.default_rng(self.seed).standard_normal(shape).astype(np.float32)
        self._bucket = np.empty((0, self.rounds), np.int16)  # (S, R)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        self._bucket = np.concatenate([self._bucket, self._hash(keys)])
        return self._append(keys, values)

    def _hash(self, keys: Singles) -> NDArray[np.int16]:
        """The bucket of each key in each round, (Q, D) to (Q, R)."""
        turned = np.einsum("qd,rdh->qrh", keys.astype(np.float64), self._turns)
        buckets: NDArray[np.int64] = np.concatenate([turned, -turned], axis=2).argmax(axis=2)
        return buckets.astype(np.int16)

    def _answer(self, queries: Singles) -> Floats:
        shared = (self._hash(queries)[:, None] == self._bucket[None]).any(axis=2)  # (Q, S)
        answers = np.zeros((len(queries), self._values.shape[1]))
        met = shared.any(axis=1)
        similar = similarity(queries[met], self._keys)
        logits = np.where(shared[met], similar / self.theta, -np.inf)
        answers[met] = softmax(logits) @ self._values
        return answers
