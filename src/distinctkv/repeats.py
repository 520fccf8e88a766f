"""Exact repeats: the slot whose key equals a token byte for byte, found by a hash of the row.

Such a slot has distance 0 and slots differ from each other, so it is the nearest: no search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rule import Keys

Hashes = NDArray[np.uint32]

WORTHWHILE = 0.1  # share of tokens that must be exact repeats for the look-up to pay
REST = 64  # chunks to pass over before trying again
MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio


class Repeats:
    """A sorted table from the hash of a key to its row; it sleeps while nothing repeats exactly."""

    def __init__(self) -> None:
        self.forget()
        self.resting = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.hashes.nbytes + self.rows.nbytes

    def forget(self) -> None:
        """Drop the table, because rows have moved."""
        self.hashes: Hashes = np.empty(0, np.uint32)
        self.rows = np.empty(0, np.int32)

    def find(self, slots: Keys, keys: Keys, *, always: bool = False) -> NDArray[np.int64] | None:
        """Row of the slot equal to each key, or -1; None when no look-up was made."""
        if self.resting and not always:
            self.resting -= 1
            return None
        self._learn(slots)
        hashes = row_hashes(keys)
        place = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        rows = np.where(self.hashes[place] == hashes, self.rows[place], -1).astype(np.int64)
        seen = np.flatnonzero(rows >= 0)
        # A hash may lie: bytes decide.
        same = (slots[rows[seen]].view(np.uint32) == keys[seen].view(np.uint32)).all(axis=1)
        rows[seen[~same]] = -1
        if same.sum() < WORTHWHILE * len(keys) and not always:
            self.resting = REST
            self.forget()
        return rows

    def _learn(self, slots: Keys) -> None:
        """Put the slots opened since the last look-up into the table."""
        known = len(self.rows)
        new = row_hashes(slots[known:])
        order = np.argsort(new)
        place = np.searchsorted(self.hashes, new[order])
        self.hashes = np.insert(self.hashes, place, new[order])
        self.rows = np.insert(self.rows, place, (known + order).astype(np.int32))


def row_hashes(keys: Keys) -> Hashes:
    """A 32-bit number for each row, the same wherever the row stands.

    >>> bool(np.unique(row_hashes(np.eye(5, dtype=np.float32))).size == 5)
    True
    """
    keys = np.ascontiguousarray(keys)
    odd = keys.shape[1] % 2
    words = keys.view(np.uint32).astype(np.uint64) if odd else keys.view(np.uint64)
    # Floats of few digits end in zeros, of which a product leaves nothing: the top comes down.
    words = words * MIX
    words ^= words >> np.uint64(32)
    factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], dtype=np.uint64)
    total: NDArray[np.uint64] = np.einsum("ij,j->i", words, factors | np.uint64(1))
    # Sums of products mix low bits poorly, so the high half it is. Of two slots with one number
    # the second is not found here, and its repeats are searched for as others are.
    return (total >> np.uint64(32)).astype(np.uint32)
