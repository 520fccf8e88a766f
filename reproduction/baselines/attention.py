"""Full attention, nearest neighbours and a Hopfield network: every token is kept."""

# S tokens, Q queries, k neighbours, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Float32s, Ids, TokenBaseline, at_least_one, similarity, softmax


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


class Hopfield(TokenBaseline):
    """Every token kept; the query moves to the keys it attends to, ``steps`` times.

    Ramsauer et al. 2021: ``q <- softmax(q K^T / theta) K``, ``1 / theta`` their beta, of which the
    last step reads the values in place of the keys. One step is full attention. We deviate: no
    learned projections; a query that a step has shortened keeps its length, as in the source.

    Of 1, 2, 3 and 5 steps at theta .02 to .15 on the recall task, all find every item; the source
    mostly needs one, and more than one is what tells it from attention.

    >>> network = Hopfield(steps=3)
    >>> network.write([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]])
    array([0, 1])
    >>> network.read([[0.8, 0.6]]).round(3)              # one step would say 1.018
    array([[1.]])
    """

    card = Card(
        mechanism="softmax over all tokens, repeated with what it returns",
        keeps="every token",
        growth="with the stream, L",
        size="4 L (D + C)",
    )

    def __init__(self, steps: int = 3, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.steps = at_least_one("steps", steps)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        return self._append(keys, values)

    def _read(self, queries: Float32s) -> Floats:
        for _ in range(self.steps - 1):
            weights = softmax(similarity(queries, self._keys) / self.theta)
            queries = (weights @ self._keys).astype(np.float32)
        return super()._read(queries)
