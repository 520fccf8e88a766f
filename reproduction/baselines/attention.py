"""Full attention and nearest neighbours: every token is kept."""

# S tokens, Q queries, k neighbours, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Float32s, Ids, TokenBaseline, at_least_one, similarity


class Attention(TokenBaseline):
    """A slot for every token (Vaswani et al. 2017), one head, no learned projections.

    ``theta`` is the temperature of the read, the same .05 as for every memory here.

    >>> attention = Attention()
    >>> attention.write([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0], [0.0]])
    array([0, 1, 2])
    >>> attention.read([[1.0, 0.0]]).round(3), len(attention)
    (array([[1.]]), 3)
    """

    card = Card(
        mechanism="softmax over all tokens",
        keeps="every token",
        growth="with the stream, L",
        size="4 L (D + C)",
    )

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        return self._append(keys, values)


class KNN(TokenBaseline):
    """Every token kept; a query is answered by the mean value of its ``k`` nearest keys.

    The retrieval family: kNN language models (Khandelwal et al. 2020), Memorizing Transformers
    (Wu et al. 2022). They mix the neighbours with a language model's own guess; here they answer
    alone. One neighbour suffices where repeats of an item agree on its value.

    >>> knn = KNN(k=2)
    >>> knn.write([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]], [[1.0], [2.0], [9.0]])
    array([0, 1, 2])
    >>> knn.read([[1.0, 0.0]])
    array([[1.5]])
    """

    card = Card(
        mechanism="mean value of the k nearest keys",
        keeps="every token",
        growth="with the stream, L",
        size="4 L (D + C)",
    )

    def __init__(self, k: int = 1) -> None:
        super().__init__()
        self.k = at_least_one("k", k)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        return self._append(keys, values)

    def _read(self, queries: Float32s) -> Floats:
        similar = similarity(queries, self._keys)
        # Stable, so that of equally near tokens the oldest answers.
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, : self.k]  # (Q, k)
        mean: Floats = self._values[nearest].mean(axis=1, dtype=np.float64)
        return mean
