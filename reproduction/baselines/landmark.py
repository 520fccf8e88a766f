"""Landmark blocks: a query picks blocks by their summary keys and attends inside them."""

# n blocks, b tokens of a block, Q queries

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, similarity, softmax


class Landmark(TokenPeer):
    """Every token kept, in blocks; a query attends to the ``k`` blocks with the nearest landmark.

    Landmark attention (Mohtashami & Jaggi 2023) trains a token at the end of each block to stand
    for it. Nothing is trained here, so the landmark is the mean key of its block, and the chosen
    blocks share one softmax. The block still being filled is always read, as in their model.

    Blocks of 50 and 5 of them are their released setting, and the defaults. The mean says less of
    a longer block, so for as many tokens read, short blocks find more; a block of one is `KNN`.

    >>> blocks = Landmark(block=2, k=1)
    >>> blocks.write([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [3.0], [4.0]])
    array([0, 1, 2, 3])
    >>> blocks.read([[1.0, 0.0], [0.0, 1.0]])
    array([[1.5],
           [3.5]])
    """

    card = Card(
        mechanism="softmax over the k blocks with the nearest mean key",
        keeps="every token, and a landmark for each block",
        growth="with the stream, L",
        size="4 L (D + C) + 4 D (L // block)",
    )

    def __init__(self, block: int = 50, k: int = 5, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.block = at_least_one("block", block)
        self.k = at_least_one("k", k)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values, and of the landmarks."""
        return super().nbytes + (self._landmarks.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._landmarks = np.empty((0, width), np.float32)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        ids = self._append(keys, values)
        full = self._keys[len(self._landmarks) * self.block :]
        full = full[: len(full) // self.block * self.block]
        means = full.reshape(-1, self.block, keys.shape[1]).mean(axis=1, dtype=np.float64)
        self._landmarks = np.concatenate([self._landmarks, means.astype(np.float32)])
        return ids

    def _answer(self, queries: Singles) -> Floats:
        nearest = np.argsort(-similarity(queries, self._landmarks), axis=1, kind="stable")
        blocks = nearest[:, : self.k, None] * self.block + np.arange(self.block)  # (Q, k, b)
        tail = np.arange(len(self._landmarks) * self.block, len(self))
        answers = np.empty((len(queries), self._values.shape[1]))
        for i, chosen in enumerate(blocks):
            places = np.concatenate([chosen.ravel(), tail])
            similar = similarity(queries[i : i + 1], self._keys[places])
            answers[i] = softmax(similar / self.theta) @ self._values[places]
        return answers
