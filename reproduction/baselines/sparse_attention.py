"""Every token kept, or the last ones, and only some of them read for a query."""

# S tokens, R rounds, H half the buckets, G groups, n blocks, b tokens of a block,
# E closed blocks, r representatives, Q queries, k neighbours, D key size, C value size

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

from .base import (
    Card,
    Float32s,
    Ids,
    TokenBaseline,
    at_least_one,
    novelty,
    similarity,
    softmax,
)

_MOST = 2**15  # buckets that 16 bits can number


class Reformer(TokenBaseline):
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
        self.buckets = buckets
        if not 2 <= buckets <= _MOST or buckets % 2:
            raise ValueError(f"buckets must be even, from 2 to {_MOST}, got {buckets}")
        self.rounds = at_least_one("rounds", rounds)
        self.seed = seed

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, of their buckets, and of the rotations."""
        return super().nbytes + (self._bucket.nbytes + self._turns.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        shape = self.rounds, width, self.buckets // 2
        self._turns = np.random.default_rng(self.seed).standard_normal(shape).astype(np.float32)
        self._bucket = np.empty((0, self.rounds), np.int16)  # (S, R)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        self._bucket = np.concatenate([self._bucket, self._hash(keys)])
        return self._append(keys, values)

    def _hash(self, keys: Float32s) -> NDArray[np.int16]:
        """The bucket of each key in each round, (Q, D) to (Q, R)."""
        turned = np.einsum("qd,rdh->qrh", keys.astype(np.float64), self._turns)
        buckets: NDArray[np.int64] = np.concatenate([turned, -turned], axis=2).argmax(axis=2)
        return buckets.astype(np.int16)

    def _read(self, queries: Float32s) -> Floats:
        shared = (self._hash(queries)[:, None] == self._bucket[None]).any(axis=2)  # (Q, S)
        answers = np.zeros((len(queries), self._values.shape[1]))
        met = shared.any(axis=1)
        similar = similarity(queries[met], self._keys)
        logits = np.where(shared[met], similar / self.theta, -np.inf)
        answers[met] = softmax(logits) @ self._values
        return answers


class Routing(TokenBaseline):
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

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._sums = np.empty((0, width), np.float32)  # (G, D), a mean but for its length
        self._group = np.empty(0, np.int64)  # (S,)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        groups = np.array([self._join(key) for key in keys], np.int64)
        self._group = np.concatenate([self._group, groups])
        return self._append(keys, values)

    def _join(self, key: Float32s) -> int:
        """Put a key in a group, a new one while there is room, and return the group."""
        if len(self._sums) < self.groups:
            self._sums = np.concatenate([self._sums, key[None]])
            return len(self._sums) - 1
        group = int(self._nearest(key[None], 1)[0, 0])
        self._sums[group] += key
        return group

    def _nearest(self, keys: Float32s, n: int) -> Ids:
        """The ``n`` groups nearest each key, (Q, D) to (Q, n)."""
        lengths = np.sqrt((self._sums**2).sum(axis=1, keepdims=True))
        # Opposite keys cancel; a group without direction is like nothing.
        means = self._sums / np.maximum(lengths, np.float32(1e-6))
        return np.argsort(-similarity(keys, means), axis=1, kind="stable")[:, :n]

    def _read(self, queries: Float32s) -> Floats:
        asked = self._nearest(queries, self.reads)  # (Q, reads)
        open_to = (self._group[None, :, None] == asked[:, None, :]).any(axis=2)  # (Q, S)
        logits = np.where(open_to, similarity(queries, self._keys) / self.theta, -np.inf)
        return softmax(logits) @ self._values


class Landmark(TokenBaseline):
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

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._landmarks = np.empty((0, width), np.float32)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = self._append(keys, values)
        full = self._keys[len(self._landmarks) * self.block :]
        full = full[: len(full) // self.block * self.block]
        means = full.reshape(-1, self.block, keys.shape[1]).mean(axis=1, dtype=np.float64)
        self._landmarks = np.concatenate([self._landmarks, means.astype(np.float32)])
        return ids

    def _read(self, queries: Float32s) -> Floats:
        nearest = np.argsort(-similarity(queries, self._landmarks), axis=1, kind="stable")
        blocks = nearest[:, : self.k, None] * self.block + np.arange(self.block)  # (Q, k, b)
        tail = np.arange(len(self._landmarks) * self.block, len(self))
        answers = np.empty((len(queries), self._values.shape[1]))
        for i, chosen in enumerate(blocks):
            places = np.concatenate([chosen.ravel(), tail])
            similar = similarity(queries[i : i + 1], self._keys[places])
            answers[i] = softmax(similar / self.theta) @ self._values[places]
        return answers


class Memorizing(TokenBaseline):
    """The last ``budget`` tokens; a query attends to the ``k`` nearest (Wu et al. 2022).

    The memory of the Memorizing Transformer. We deviate: the search is exact, and the answer is not
    mixed with attention over a local context by a learned gate.

    ``k`` is the source's. Of 1 to 64 on the recall task none does better; the budget decides.

    >>> queue = Memorizing(budget=3, k=2)
    >>> queue.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [-1.0, 0.0]], [[1.0], [2.0], [4.0], [9.0]])
    array([0, 1, 2, 3])
    >>> queue.read([[0.0, 1.0]]), len(queue)
    (array([[3.]]), 3)
    """

    card = Card(
        mechanism="first in, first out; softmax over the k nearest",
        keeps="the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, k: int = 32, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.k = at_least_one("k", k)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = self._append(keys, values)
        # A copy: a view would keep the evicted rows in memory.
        self._keys = self._keys[-self.budget :].copy()
        self._values = self._values[-self.budget :].copy()
        return ids

    def _read(self, queries: Float32s) -> Floats:
        similar = similarity(queries, self._keys)
        # Stable, so that of equally near tokens the oldest answers.
        nearest = np.argsort(-similar, axis=1, kind="stable")[:, : self.k]  # (Q, k)
        weights = softmax(np.take_along_axis(similar, nearest, axis=1) / self.theta)
        mean: Floats = np.einsum("qk,qkc->qc", weights, self._values[nearest])
        return mean


_LONGEST = 128  # the source's, for a block in which nothing surprises
_BLOCK = 64  # tokens compared at once: a long chunk has no table of all pairs


class EMLLM(TokenBaseline):
    """Every token kept, in blocks that begin where a token surprises (Fountas et al. 2025).

    A token begins a block when its surprise exceeds ``mean + gamma std`` of the ``window`` before
    it. A query picks the ``reads`` blocks with the most similar representative, and attends to the
    tokens of these, of their neighbours in time, and of the open block. It saves time, not memory.

    We deviate: surprise is the novelty of a key, ``1 - max cosine`` to all tokens before, where the
    source has a language model's; borders are not refined; the ``representatives`` of a block, the
    least it can hold, are the tokens most like the rest of it.

    The source has ``gamma`` around 1. Of -1 to 2, windows of 16 and 64, 1 to 8 reads and 1 to 8
    representatives on the recall task, the default finds nearly every item from a seventh of the
    tokens. Below 0 it finds all, but blocks are then of the least length, whatever surprises.

    >>> memory = EMLLM(representatives=1)
    >>> memory.write(np.eye(4)[[0, 0, 0, 1, 1, 2]], [[1.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    array([0, 1, 2, 3, 4, 5])
    >>> memory.read(np.eye(4)[:1]).round(3), memory.borders()
    (array([[1.]]), array([0, 3, 5]))
    """

    card = Card(
        mechanism="blocks cut by surprise; softmax over the nearest blocks and their neighbours",
        keeps="every token, and the border and representatives of each of E + 1 blocks",
        growth="with the stream, L",
        size="4 L (D + C) + 8 E (representatives + 1) + 8 + 8 window",
    )

    def __init__(
        self,
        gamma: float = 0.0,
        window: int = 16,
        reads: int = 1,
        representatives: int = 8,
        theta: float = 0.05,
    ) -> None:
        super().__init__(theta)
        if not np.isfinite(gamma):
            raise ValueError(f"gamma must be finite, got {gamma}")
        self.gamma = gamma
        self.window = at_least_one("window", window)
        self.reads = at_least_one("reads", reads)
        self.representatives = at_least_one("representatives", representatives)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, of the blocks, and of the window of surprises."""
        more = (self._borders, self._rep_places, self._recent) if self._widths else ()
        return super().nbytes + sum(array.nbytes for array in more)

    def borders(self) -> Ids:
        """The place of the first token of each block, the open one last."""
        return self._borders.copy()

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._borders = np.zeros(1, np.int64)  # (E + 1,), the first token of each block
        self._rep_places = np.empty((0, self.representatives), np.int64)  # (E, r)
        self._recent = np.empty(0)  # the last surprises

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = self._append(keys, values)
        surprises = np.concatenate([self._recent, surprise(self._keys, self._tokens)])
        for place, now in zip(ids, range(len(self._recent), len(surprises)), strict=True):
            past = surprises[max(now - self.window, 0) : now]
            length = place - self._borders[-1]
            if length < self.representatives:
                continue
            if length >= _LONGEST or surprises[now] > past.mean() + self.gamma * past.std():
                self._close(int(place))
        self._recent = surprises[-self.window :].copy()
        return ids

    def _close(self, place: int) -> None:
        """End the open block before ``place``, choose its representatives, and begin the next."""
        start = int(self._borders[-1])
        block = self._keys[start:place]
        alike = similarity(block, block).sum(axis=1)
        places = np.argsort(-alike, kind="stable")[: self.representatives]
        self._rep_places = np.concatenate([self._rep_places, start + np.sort(places)[None]])
        self._borders = np.append(self._borders, place)

    def _read(self, queries: Float32s) -> Floats:
        similar = similarity(queries, self._keys)  # (Q, S)
        scores = similar[:, self._rep_places].max(axis=2)  # (Q, E)
        picked = np.argsort(-scores, axis=1, kind="stable")[:, : self.reads]
        chosen = np.zeros((len(queries), len(self._borders)), bool)
        chosen[:, -1] = True
        for step in (-1, 0, 1):
            np.put_along_axis(chosen, np.maximum(picked + step, 0), True, axis=1)
        block = np.searchsorted(self._borders, np.arange(len(self)), side="right") - 1  # (S,)
        return softmax(np.where(chosen[:, block], similar / self.theta, -np.inf)) @ self._values


def surprise(keys: Float32s, start: int) -> Floats:
    """``1 - max cosine`` to the keys before, for each key from ``start`` on; 1 for the first.

    >>> surprise(np.eye(2, dtype=np.float32)[[0, 1, 1]], start=0)
    array([1., 1., 0.])
    """
    found = np.empty(len(keys) - start)
    for at in range(start, len(keys), _BLOCK):
        now = keys[at : at + _BLOCK]
        later = np.arange(at + len(now)) >= np.arange(at, at + len(now))[:, None]
        gaps = np.where(later, np.inf, novelty(now, keys[: at + len(now)]))
        found[at - start :][: len(now)] = gaps.min(axis=1)
    return np.where(np.isinf(found), 1.0, found)
