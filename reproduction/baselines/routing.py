"""Routing: tokens in groups, and a query reads its own group."""

# S tokens, G groups, Q queries, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, similarity, softmax


class Routing(TokenPeer):
    """Every token kept, in the group of the nearest mean; a query attends to ``reads`` groups.

    The Routing Transformer (Roy et al. 2021), whose groups come from k-means run online over keys
    and queries; clustered attention (Vyas et al. 2020) groups the queries instead. It saves time,
    not memory. We deviate: the first tokens start the groups, a mean counts all its tokens alike
    where the source decays it by .999 a step, groups may differ in size, and a token stays in the
    group it was put in.

    ``groups`` is the square root of 256 tokens, the source's rule. Of 4 to 64 groups and 1 to 3
    reads on the recall task, nearly all find every item.

    >>> routing = Routing(groups=2, reads=1)
    >>> routing.write([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], [[1.0], [2.0], [1.0]])
    array([0, 1, 2])
    >>> routing.read([[1.0, 0.0]]), len(routing)
    (array([[1.]]), 3)
    """

    card = Card(
        mechanism="k-means groups, softmax within the group of the query",
        keeps="every token, its group, and the mean key of each group",
        growth="with the stream, L",
        size="4 L (D + C) + 8 L + 4 groups D",
    )

    def __init__(self, groups: int = 16, reads: int = 1, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.groups = at_least_one("groups", groups)
        self.reads = at_least_one("reads", reads)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, of their groups, and of the groups' keys."""
        return super().nbytes + (self._sums.nbytes + self._group.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._sums = np.empty((0, width), np.float32)  # (G, D), a mean but for its length
        self._group = np.empty(0, np.int64)  # (S,)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        groups = np.array([self._join(key) for key in keys], np.int64)
        self._group = np.concatenate([self._group, groups])
        return self._append(keys, values)

    def _join(self, key: Singles) -> int:
        """Put a key in a group, a new one while there is room, and return the group."""
        if len(self._sums) < self.groups:
            self._sums = np.concatenate([self._sums, key[None]])
            return len(self._sums) - 1
        group = int(self._nearest(key[None], 1)[0, 0])
        self._sums[group] += key
        return group

    def _nearest(self, keys: Singles, n: int) -> Ids:
        """The ``n`` groups nearest each key, (Q, D) to (Q, n)."""
        lengths = np.sqrt((self._sums**2).sum(axis=1, keepdims=True))
        # Opposite keys cancel; a group without direction is like nothing.
        means = self._sums / np.maximum(lengths, np.float32(1e-6))
        return np.argsort(-similarity(keys, means), axis=1, kind="stable")[:, :n]

    def _answer(self, queries: Singles) -> Floats:
        asked = self._nearest(queries, self.reads)  # (Q, reads)
        open_to = (self._group[None, :, None] == asked[:, None, :]).any(axis=2)  # (Q, S)
        logits = np.where(open_to, similarity(queries, self._keys) / self.theta, -np.inf)
        return softmax(logits) @ self._values
