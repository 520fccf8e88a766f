"""The rule without our engines: one product per token, and one product per chunk.

Both get rows of length one and keep keys alone: no check of the input, no usage, no values.
"""

# L tokens of a chunk, S slots, D key size

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .common import Ints, Rows

Scores = NDArray[np.float32]


class Keys:
    """Keys of slots in a buffer that doubles; a slot's id is its row."""

    def __init__(self, keys: Rows) -> None:
        """Start from the slots given, of shape (S, D)."""
        self.n = len(keys)
        self.buffer = np.empty((max(1024, 2 * self.n), keys.shape[1]), np.float32)
        self.buffer[: self.n] = keys

    def add(self, keys: Rows) -> None:
        """Append keys."""
        stop = self.n + len(keys)
        if stop > len(self.buffer):
            larger = np.empty((2 * stop, keys.shape[1]), np.float32)
            larger[: self.n] = self.buffer[: self.n]
            self.buffer = larger
        self.buffer[self.n : stop] = keys
        self.n = stop


class Naive(Keys):
    """The loop anyone writes first: ``keys @ row``, argmax, threshold."""

    grain = 64  # tokens in the smallest sample worth timing

    def write(self, rows: Rows, similarity: float) -> Ints:
        """Slot of each token."""
        ids = np.empty(len(rows), np.int64)
        for t, row in enumerate(rows):
            best, score = -1, -np.inf
            if self.n:
                scores = self.buffer[: self.n] @ row
                best = scores.argmax()
                score = scores[best]
            if score < similarity:
                best = self.n
                self.add(row[None])
            ids[t] = best
        return ids


class Chunked(Keys):
    """One product of a chunk with all slots, then what is novel settled in order."""

    grain = 1024  # the chunk

    def __init__(self, keys: Rows) -> None:
        """Start from the slots given, with room for the scores that is kept between chunks."""
        super().__init__(keys)
        self.room = np.empty(0, np.float32)

    def write(self, rows: Rows, similarity: float) -> Ints:
        """Slot of each token."""
        parts = [
            self._write(rows[start : start + self.grain], similarity)
            for start in range(0, len(rows), self.grain)
        ]
        return np.concatenate(parts)

    def _write(self, rows: Rows, similarity: float) -> Ints:
        best, score = np.full(len(rows), -1), np.full(len(rows), -np.inf, np.float32)
        if self.n:
            scores = self._scores(rows)
            best = scores.argmax(axis=1)
            score = scores[np.arange(len(rows)), best]
        opened = settle(rows, best, score, self.n, similarity)
        self.add(rows[opened])
        return best

    def _scores(self, rows: Rows) -> Scores:
        size = len(rows) * self.n
        if size > len(self.room):
            self.room = np.empty(size + size // 4, np.float32)
        scores = self.room[:size].reshape(len(rows), self.n)
        return np.matmul(rows, self.buffer[: self.n].T, out=scores)


def settle(rows: Rows, best: Ints, score: Scores, n_slots: int, similarity: float) -> Ints:
    """Open slots within a chunk, in order; ``best`` is brought up to date, openers are returned.

    ``best`` and ``score`` come from the slots there were before the chunk. A token novel to those
    opens unless a slot opened before it in the chunk is like it; every later token may prefer one.
    """
    novel = np.flatnonzero(score < similarity)
    if len(novel) == 0:
        return novel
    alike = rows[novel] @ rows[novel].T >= similarity
    covered, opened = np.zeros(len(novel), bool), []
    for j in range(len(novel)):
        if not covered[j]:
            opened.append(novel[j])
            covered |= alike[j]
    openers = np.array(opened)
    scores = rows @ rows[openers].T
    scores[np.arange(len(rows))[:, None] < openers] = -np.inf
    nearest = scores.argmax(axis=1)
    better = scores[np.arange(len(rows)), nearest] > score
    better[openers] = True
    nearest[openers] = np.arange(len(openers))
    best[better] = n_slots + nearest[better]
    return openers
