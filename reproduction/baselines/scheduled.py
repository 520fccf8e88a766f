"""What KVM and OVQ share: slots opened chunk by chunk, as many as a schedule allows."""

# l tokens of a chunk, S slots, Q queries, D key size, C value size

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from distinctkv.rule import Floats

from .base import Ids, Peer, Singles, at_least_one, positive, similarity, softmax


class ScheduledPeer(Peer):
    """Slots that hold a sum of keys, a sum of values and a count; how many is a matter of time.

    When ``chunk`` tokens have come in, those least like any slot open new ones, as many as are due,
    and the rest join the slot most like them. Until then they wait in a tail, which a read sees
    token by token. No token has its slot when it is written, so every id is -1.
    """

    def __init__(self, chunk: int, theta: float) -> None:
        super().__init__()
        self.chunk = at_least_one("chunk", chunk)
        self.theta = positive("theta", theta)

    @abstractmethod
    def _due(self, n_tokens: int) -> int:
        """Slots that there should be after ``n_tokens``."""

    @abstractmethod
    def _slot_keys(self) -> Singles:
        """The key of each slot, (S, D), from its sum and its count."""

    def _bias(self) -> Floats:
        """What a read adds to the logit of each slot."""
        return np.zeros(len(self._counts))

    def __len__(self) -> int:
        """Slots, and tokens in the tail."""
        return len(self._counts) + len(self._tail) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the slots' sums and counts, and of the tail."""
        if self._widths is None:
            return 0
        held = self._keys, self._values, self._counts, self._tail, self._tail_values
        return sum(array.nbytes for array in held)

    def _start(self, width: int, n_values: int) -> None:
        self._keys = self._tail = np.empty((0, width), np.float32)
        self._values = self._tail_values = np.empty((0, n_values), np.float32)
        self._counts = np.empty(0, np.int64)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        waiting = np.concatenate([self._tail, keys])
        waiting_values = np.concatenate([self._tail_values, values])
        done = len(waiting) - len(waiting) % self.chunk
        for start in range(0, done, self.chunk):
            rows = slice(start, start + self.chunk)
            self._absorb(waiting[rows], waiting_values[rows])
        # Copies: views would keep the whole chunk in memory.
        self._tail, self._tail_values = waiting[done:].copy(), waiting_values[done:].copy()
        return np.full(len(keys), -1)

    def _absorb(self, keys: Singles, values: Singles) -> None:
        """Open the slots that are due, and merge the rest of the chunk."""
        due = max(self._due(int(self._counts.sum()) + len(keys)), 1) - len(self._counts)
        # With no slot yet every token is as novel, and the first ones open slots.
        known = similarity(keys, self._slot_keys()).max(axis=1, initial=-1.0)
        order = np.argsort(known, kind="stable")
        novel, rest = np.sort(order[: max(due, 0)]), np.sort(order[max(due, 0) :])
        self._keys = np.concatenate([self._keys, keys[novel]])
        self._values = np.concatenate([self._values, values[novel]])
        self._counts = np.concatenate([self._counts, np.ones(len(novel), np.int64)])
        nearest = similarity(keys[rest], self._slot_keys()).argmax(axis=1)
        np.add.at(self._keys, nearest, keys[rest])
        np.add.at(self._values, nearest, values[rest])
        np.add.at(self._counts, nearest, 1)

    def _answer(self, queries: Singles) -> Floats:
        keys = np.concatenate([self._slot_keys(), self._tail])
        means = self._values / self._counts[:, None]
        bias = np.concatenate([self._bias(), np.zeros(len(self._tail))])
        weights = softmax(similarity(queries, keys) / self.theta + bias)
        answers: Floats = weights @ np.concatenate([means, self._tail_values])
        return answers
