"""Slots opened chunk by chunk, as many as a schedule allows: KVM and OVQ."""

# l tokens of a chunk, S slots, Q queries, D key size, C value size

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from distinctkv.rule import Floats

from .base import Baseline, Card, Float32s, Ids, at_least_one, positive, similarity, softmax


class ScheduledBaseline(Baseline):
    """Slots that hold a sum of keys, a sum of values and a count; time decides how many.

    After every ``chunk`` tokens, those least similar to any slot open new slots, as many as the
    schedule allows, and the others merge into the most similar slot. Until then tokens are kept in
    a tail, which a read sees token by token. Slots are not known when a token is written, so every
    id is -1.
    """

    def __init__(self, chunk: int, theta: float) -> None:
        super().__init__()
        self.chunk = at_least_one("chunk", chunk)
        self.theta = positive("theta", theta)

    @abstractmethod
    def _due(self, n_tokens: int) -> int:
        """Slots that there should be after ``n_tokens``."""

    @abstractmethod
    def _slot_keys(self) -> Float32s:
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

    def _init_state(self, width: int, n_values: int) -> None:
        self._keys = self._tail = np.empty((0, width), np.float32)
        self._values = self._tail_values = np.empty((0, n_values), np.float32)
        self._counts = np.empty(0, np.int64)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        waiting = np.concatenate([self._tail, keys])
        waiting_values = np.concatenate([self._tail_values, values])
        done = len(waiting) - len(waiting) % self.chunk
        for start in range(0, done, self.chunk):
            rows = slice(start, start + self.chunk)
            self._write_chunk(waiting[rows], waiting_values[rows])
        # Copies: views would keep the whole chunk in memory.
        self._tail, self._tail_values = waiting[done:].copy(), waiting_values[done:].copy()
        return np.full(len(keys), -1)

    def _write_chunk(self, keys: Float32s, values: Float32s) -> None:
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

    def _read(self, queries: Float32s) -> Floats:
        keys = np.concatenate([self._slot_keys(), self._tail])
        means = self._values / self._counts[:, None]
        bias = np.concatenate([self._bias(), np.zeros(len(self._tail))])
        weights = softmax(similarity(queries, keys) / self.theta + bias)
        answers: Floats = weights @ np.concatenate([means, self._tail_values])
        return answers


class KVM(ScheduledBaseline):
    """``factor sqrt(T)`` slots after T tokens; the rest merge by sum (KVM, arXiv 2605.09877, 2026).

    Chunk by chunk, the tokens whose keys are least like any slot are appended, and the others are
    added to the slot most like them: a winner takes key and value whole. The count is a matter of
    time, whatever the stream holds. A slot's key is its sum scaled to length one, as the source
    normalises it, and its value the mean.

    We deviate: no sink, no learned merge gate, no projections, no position in the keys, and the
    window of exact tokens is the unfinished chunk, where the source has two chunks of 256. The
    first chunk becomes slots whole, as in the source.

    The source has ``factor`` = 16, a slot for every one of 256 tokens. Of 2 to 16 and chunks from 4
    to 64 on the recall task, the default is the smallest that finds nearly every item; in a
    longer chunk more repeats of one item are appended side by side.

    >>> kvm = KVM(factor=1, chunk=2)
    >>> kvm.write(np.eye(3)[[0, 1, 0, 1, 2]], [[1.0], [2.0], [3.0], [4.0], [9.0]])
    array([-1, -1, -1, -1, -1])
    >>> len(kvm), kvm.read(np.eye(3)).round(3).ravel()      # two slots, and one token in the tail
    (3, array([2., 3., 9.]))
    """

    card = Card(
        mechanism="per chunk the most novel tokens are appended, the rest summed into the nearest",
        keeps="a sum of keys, a sum of values and a count in each of S slots; the unfinished chunk",
        growth="with the root of the stream: S = factor sqrt(L)",
        size="4 (D + C) (S + L % chunk) + 8 S",
    )

    def __init__(self, factor: float = 5.5, chunk: int = 16, theta: float = 0.05) -> None:
        super().__init__(chunk, theta)
        self.factor = positive("factor", factor)

    def _due(self, n_tokens: int) -> int:
        return max(int(self.factor * np.sqrt(n_tokens)), self.chunk)

    def _slot_keys(self) -> Float32s:
        lengths = np.sqrt((self._keys**2).sum(axis=1, keepdims=True))
        # Opposite keys cancel; a slot without direction is like nothing.
        units: Float32s = self._keys / np.maximum(lengths, np.float32(1e-6))
        return units


class OVQ(ScheduledBaseline):
    """``n T / (n + T)`` slots after T tokens, each a running mean (OVQ, arXiv 2602.03922, 2026).

    Online vector-quantised attention. Chunk by chunk, the tokens whose keys are least like any slot
    become slots, and the others move the nearest one by ``1 / count``. A read adds ``log count`` to
    the logit of a slot, so that it weighs as all its tokens would. The number of slots tends to
    ``limit``, whatever the stream holds.

    We deviate: slots are kept as sums, which is the same mean; there are no projections, and
    nothing is learned; a read sees the unfinished chunk token by token. The rule is that of the
    code with which the authors of KVM compare, not of the authors of OVQ.

    Of limits from 64 to 256 and chunks from 4 to 64 on the recall task, the default is the smallest
    limit that finds every item.

    >>> ovq = OVQ(limit=4, chunk=4)
    >>> ovq.write(np.eye(2)[[0, 1, 0, 1, 0]], [[1.0], [2.0], [3.0], [4.0], [5.0]])
    array([-1, -1, -1, -1, -1])
    >>> len(ovq), ovq.read(np.eye(2)).round(3).ravel()      # two slots, and one token in the tail
    (3, array([3., 3.]))
    """

    card = Card(
        mechanism="per chunk the most novel tokens open slots, the rest move the nearest mean",
        keeps="a sum of keys, a sum of values and a count in each of S slots; the unfinished chunk",
        growth="to the limit: S = limit L / (limit + L)",
        size="4 (D + C) (S + L % chunk) + 8 S",
    )

    def __init__(self, limit: int = 128, chunk: int = 16, theta: float = 0.05) -> None:
        super().__init__(chunk, theta)
        self.limit = at_least_one("limit", limit)

    def _due(self, n_tokens: int) -> int:
        return self.limit * n_tokens // (self.limit + n_tokens)

    def _slot_keys(self) -> Float32s:
        return (self._keys / self._counts[:, None]).astype(np.float32)

    def _bias(self) -> Floats:
        return np.log(self._counts)
