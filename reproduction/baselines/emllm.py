"""EM-LLM: the stream cut into blocks where it surprises, read in two stages."""

# S tokens, E closed blocks, r representatives, Q queries, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Singles, TokenPeer, at_least_one, novelty, real, similarity, softmax

_LONGEST = 128  # the source's, for a block in which nothing surprises
_BLOCK = 64  # tokens compared at once: a long chunk has no table of all pairs


class EMLLM(TokenPeer):
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
        if not np.isfinite(real("gamma", gamma)):
            raise ValueError(f"gamma must be finite, got {gamma}")
        self.gamma = gamma
        self.window = at_least_one("window", window)
        self.reads = at_least_one("reads", reads)
        self.representatives = at_least_one("representatives", representatives)

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens, of the blocks, and of the window of surprises."""
        more = (self._borders, self._faces, self._recent) if self._widths else ()
        return super().nbytes + sum(array.nbytes for array in more)

    def borders(self) -> Ids:
        """The place of the first token of each block, the open one last."""
        return self._borders.copy()

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._borders = np.zeros(1, np.int64)  # (E + 1,), the first token of each block
        self._faces = np.empty((0, self.representatives), np.int64)  # (E, r), places of tokens
        self._recent = np.empty(0)  # the last surprises

    def _store(self, keys: Singles, values: Singles) -> Ids:
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
        faces = np.argsort(-alike, kind="stable")[: self.representatives]
        self._faces = np.concatenate([self._faces, start + np.sort(faces)[None]])
        self._borders = np.append(self._borders, place)

    def _answer(self, queries: Singles) -> Floats:
        similar = similarity(queries, self._keys)  # (Q, S)
        scores = similar[:, self._faces].max(axis=2)  # (Q, E)
        picked = np.argsort(-scores, axis=1, kind="stable")[:, : self.reads]
        chosen = np.zeros((len(queries), len(self._borders)), bool)
        chosen[:, -1] = True
        for step in (-1, 0, 1):
            np.put_along_axis(chosen, np.maximum(picked + step, 0), True, axis=1)
        block = np.searchsorted(self._borders, np.arange(len(self)), side="right") - 1  # (S,)
        return softmax(np.where(chosen[:, block], similar / self.theta, -np.inf)) @ self._values


def surprise(keys: Singles, start: int) -> Floats:
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
