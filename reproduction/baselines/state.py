"""What fixed states share: one matrix, of one size from the first token to the last."""

# L tokens, D key size, C value size

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from distinctkv.rule import Floats

from .base import Ids, Peer, Singles, real

# Tokens that a closed form settles at once. It solves for them together: the cost grows with the
# square of the block, the overhead shrinks with it.
BLOCK = 64


class State(Peer):
    """A peer that keeps a matrix and no token.

    No token has a slot of its own, so every id is -1. ``len`` counts the rows of the matrix, as the
    paper does; ``nbytes`` counts every array held and is the fair measure. Random projections are
    drawn once and held, so they count.
    """

    _state: Singles

    def __len__(self) -> int:
        return len(self._state) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, the same however long the stream."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    def _store(self, keys: Singles, values: Singles) -> Ids:
        for start in range(0, len(keys), BLOCK):
            block = slice(start, start + BLOCK)
            self._absorb(keys[block].astype(np.float64), values[block].astype(np.float64))
        return np.full(len(keys), -1)

    @abstractmethod
    def _absorb(self, keys: Floats, values: Floats) -> None:
        """Take in at most ``BLOCK`` tokens, as if they came one by one."""


class LinearState(State):
    """A matrix (D, C) that a query multiplies."""

    def _start(self, width: int, n_values: int) -> None:
        self._state = np.zeros((width, n_values), np.float32)

    def _answer(self, queries: Singles) -> Floats:
        return (queries @ self._state).astype(np.float64)


def fraction(name: str, number: float) -> float:
    """A number above 0 and at most 1, or a refusal."""
    if not 0 < real(name, number) <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {number}")
    return float(number)
