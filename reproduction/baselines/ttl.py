"""Time to live: a slot that nothing has used for a while is dropped."""

# l tokens of a block, S slots before it

from __future__ import annotations

import numpy as np

from distinctkv.policy import check_metric
from distinctkv.rule import Floats

from .base import (
    Card,
    Ids,
    Peer,
    Singles,
    at_least_one,
    novelty,
    positive,
    real,
    similarity,
    softmax,
)

_BLOCK = 32


class TTL(Peer):
    """Slots open on novelty, as in the cache; one that was idle for over ``idle`` tokens leaves.

    Expiry, as in any web cache: no budget, no usage, and yet the memory breathes with the stream.
    It holds at most ``idle + 1`` slots, since each token uses one. Keys and values are those of
    the first occurrence. The default suits the paper's alternating stream, where up to 30 items
    take turns: it costs about as many slots there as the adaptive budget. ``tau`` is the cache's.

    >>> fresh = TTL(idle=1)
    >>> fresh.write(np.eye(3)[[0, 1, 0, 2, 0]], np.eye(3)[[0, 1, 0, 2, 0]])
    array([0, 1, 0, 2, 0])
    >>> len(fresh)                                           # the second slot has left
    2
    """

    card = Card(
        mechanism="slots open on novelty; one idle for too long leaves",
        keeps="the distinct items of the last idle + 1 tokens",
        growth="with the distinct items of late, S, up and down",
        size="4 S (D + C) + 16 S",
    )

    def __init__(self, idle: int = 40, tau: float = 0.3, theta: float = 0.05) -> None:
        super().__init__()
        self.idle = at_least_one("idle", idle)
        self.tau = 0.0 if real("tau", tau) == 0 else positive("tau", tau)
        check_metric("cosine", tau)
        self.theta = positive("theta", theta)
        self._born = 0

    def __len__(self) -> int:
        return len(self._keys) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the slots, with their ids and times of last use."""
        if self._widths is None:
            return 0
        columns = self._keys, self._values, self._ids, self._used
        return sum(column.nbytes for column in columns)

    def _start(self, width: int, n_values: int) -> None:
        self._keys = np.empty((0, width), np.float32)
        self._values = np.empty((0, n_values), np.float32)
        self._ids: Ids = np.empty(0, np.int64)
        self._used: Ids = np.empty(0, np.int64)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        parts = [slice(start, start + _BLOCK) for start in range(0, len(keys), _BLOCK)]
        ids = [self._settle(keys[p], values[p], self._tokens + p.start) for p in parts]
        return np.concatenate(ids)

    def _settle(self, keys: Singles, values: Singles, now: int) -> Ids:
        """Take in a block; column S + t is the slot that token t opens, if it does."""
        before, n_new = len(self._keys), len(keys)
        self._keys = np.concatenate([self._keys, keys])
        self._values = np.concatenate([self._values, values])
        slot_ids = np.concatenate([self._ids, np.zeros(n_new, np.int64)])
        used = np.concatenate([self._used, np.zeros(n_new, np.int64)])
        alive = np.arange(before + n_new) < before
        gaps = novelty(keys, self._keys)
        due = {int(time): column for column, time in enumerate(self._used)}
        ids = np.empty(n_new, np.int64)
        for t, time in enumerate(range(now, now + n_new)):
            slot = self._nearest(np.where(alive[: before + t], gaps[t, : before + t], np.inf))
            if slot < 0:
                slot = before + t
                alive[slot], slot_ids[slot], self._born = True, self._born, self._born + 1
            ids[t], used[slot], due[time] = slot_ids[slot], time, slot
            # Each token uses one slot, so only the one used then can have just become too idle.
            last = time - self.idle - 1
            if used[stale := due.get(last, slot)] == last:
                alive[stale] = False
        self._keys, self._values = self._keys[alive], self._values[alive]
        self._ids, self._used = slot_ids[alive], used[alive]
        return ids

    def _nearest(self, gaps: Floats) -> int:
        """Column of the slot to merge with, the oldest of equals; -1 if all are too far."""
        column = int(gaps.argmin()) if len(gaps) else -1
        return -1 if column < 0 or gaps[column] > self.tau else column

    def _answer(self, queries: Singles) -> Floats:
        return softmax(similarity(queries, self._keys) / self.theta) @ self._values
