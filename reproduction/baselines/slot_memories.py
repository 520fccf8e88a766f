"""Slots that open on novelty or error, and samples: paging, expiry, SubGen, HAM, NEC."""

# l tokens of a block, n kept tokens, S slots, G groups, t samples of a group, k neighbours,
# Q queries, D key size, C value size

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from .base import (
    Baseline,
    Card,
    Float32s,
    Ids,
    TokenBaseline,
    at_least_one,
    fraction,
    novelty,
    positive,
    similarity,
    softmax,
)


class _Budgeted(Baseline):
    """The cache under a budget; the decay of usage makes it LRU or LFU."""

    def __init__(self, budget: int, tau: float, decay: float, theta: float) -> None:
        super().__init__()
        self.theta = positive("theta", theta)
        self._cache = Cache(Concentration.fixed(tau, at_least_one("budget", budget), decay=decay))

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def nbytes(self) -> int:
        """Bytes of the slots, their counters and room for growth included."""
        return self._cache.nbytes

    def _init_state(self, width: int, n_values: int) -> None:
        """The cache starts itself."""

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        return self._cache.write(keys, values)

    def _read(self, queries: Float32s) -> Floats:
        return self._cache.read(queries, self.theta).astype(np.float64)


class LRU(_Budgeted):
    """Slots open on novelty, as in the cache; over budget, the least recently used leaves.

    Textbook paging. It is the cache with a usage so short that only the last use counts. The
    budget is its setting; ``tau`` is the cache's, .3 as in study ``recall``.

    >>> recent = LRU(budget=2)
    >>> recent.write(np.eye(3)[[0, 1, 0, 2]], np.eye(3)[[0, 1, 0, 2]])
    array([0, 1, 0, 2])
    >>> recent.read(np.eye(3)[:1]).round(3)                  # the second slot has left
    array([[1., 0., 0.]])
    """

    card = Card(
        mechanism="slots open on novelty; the least recently used leaves",
        keeps="the distinct items used last",
        growth="with distinct items, to the budget B",
        size="4 B (D + C) + 40 B, and room to grow",
    )

    def __init__(self, budget: int, tau: float = 0.3, theta: float = 0.05) -> None:
        super().__init__(budget, tau, 1e-6, theta)


class LFU(_Budgeted):
    """Slots open on novelty, as in the cache; over budget, the least frequently used leaves.

    A use counts ``decay`` times less with each token that follows. At 1 this is textbook LFU, which
    holds on to what was frequent long ago; at .98, the default, it is the paper's own budget
    (eq. 6) and the cache's. A slot stays at least for the step that opened it.

    >>> frequent = LFU(budget=2, decay=1.0)
    >>> frequent.write(np.eye(3)[[0, 0, 1, 2]], np.eye(3)[[0, 0, 1, 2]])
    array([0, 0, 1, 2])
    >>> frequent.read(np.eye(3)[:1]).round(3)                # the second slot has left
    array([[1., 0., 0.]])
    """

    card = Card(
        mechanism="slots open on novelty; the least used leaves, old uses counting less",
        keeps="the distinct items used most",
        growth="with distinct items, to the budget B",
        size="4 B (D + C) + 40 B, and room to grow",
    )

    def __init__(
        self, budget: int, tau: float = 0.3, decay: float = 0.98, theta: float = 0.05
    ) -> None:
        super().__init__(budget, tau, decay, theta)


_BLOCK = 128


class TTL(Baseline):
    """Slots open on novelty, as in the cache; one that was idle for over ``idle`` tokens leaves.

    Expiry, as in any web cache: no budget and no usage; the number of slots follows the stream, at
    most ``idle + 1``, since each token uses one. Keys and values are those of the first occurrence.
    The default suits the paper's alternating stream, where up to 30 items take turns: it costs
    about as many slots there as the adaptive budget. ``tau`` is the cache's.

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
        if not 0 <= tau <= 2:
            raise ValueError(f"tau must lie in [0, 2], got {tau}")
        self.tau = tau
        self.theta = positive("theta", theta)
        self._n_opened = 0

    def __len__(self) -> int:
        return len(self._keys) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the slots, with their ids and times of last use."""
        if self._widths is None:
            return 0
        columns = self._keys, self._values, self._ids, self._used
        return sum(column.nbytes for column in columns)

    def _init_state(self, width: int, n_values: int) -> None:
        self._keys = np.empty((0, width), np.float32)
        self._values = np.empty((0, n_values), np.float32)
        self._ids: Ids = np.empty(0, np.int64)
        self._used: Ids = np.empty(0, np.int64)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        parts = [slice(start, start + _BLOCK) for start in range(0, len(keys), _BLOCK)]
        ids = [self._write_block(keys[p], values[p], self._tokens + p.start) for p in parts]
        return np.concatenate(ids)

    def _write_block(self, keys: Float32s, values: Float32s, now: int) -> Ids:
        """Store a block; column S + t is the slot that token t opens, if it does."""
        before, n_new = len(self._keys), len(keys)
        self._keys = np.concatenate([self._keys, keys])
        self._values = np.concatenate([self._values, values])
        slot_ids = np.concatenate([self._ids, np.zeros(n_new, np.int64)])
        used = np.concatenate([self._used, np.zeros(n_new, np.int64)])
        alive = np.arange(before + n_new) < before
        gaps = novelty(keys, self._keys)  # of a column without a slot: inf
        own = gaps[:, before:].copy()
        gaps[:, before:] = np.inf
        due = {int(time): column for column, time in enumerate(self._used)}
        ids = np.empty(n_new, np.int64)
        for t, time in enumerate(range(now, now + n_new)):
            slot = int(gaps[t].argmin())  # of equals the oldest
            if not gaps[t, slot] <= self.tau:
                slot = before + t
                gaps[t + 1 :, slot] = own[t + 1 :, t]
                alive[slot], slot_ids[slot] = True, self._n_opened
                self._n_opened += 1
            ids[t], used[slot], due[time] = slot_ids[slot], time, slot
            # Each token uses one slot, so only the one used then can have just become too idle.
            last = time - self.idle - 1
            if used[stale := due.get(last, slot)] == last:
                alive[stale] = False
                gaps[t + 1 :, stale] = np.inf
        self._keys, self._values = self._keys[alive], self._values[alive]
        self._ids, self._used = slot_ids[alive], used[alive]
        return ids

    def _read(self, queries: Float32s) -> Floats:
        return softmax(similarity(queries, self._keys) / self.theta) @ self._values


class GroupSamples(Baseline):
    """A key further than ``delta`` from each group's first key opens a group, which keeps samples.

    Ours, made of SubGen's parts: where SubGen samples values over the whole stream, a group here
    keeps ``samples`` of its tokens with their values, drawn evenly (a reservoir), and its count. A
    read weighs each sample by the tokens it stands for. A group is a slot of the cache with ``tau``
    = ``delta^2 / 2``, first keys, no budget. The id of a token is its group.

    >>> memory = GroupSamples(delta=0.5)
    >>> memory.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [2.0], [1.0]])
    array([0, 1, 0])
    >>> memory.read([[1.0, 0.0]]).round(3), len(memory)
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="groups of radius delta, a count and a sample of tokens for each",
        keeps="the first key, the count and sampled tokens of each of G groups",
        growth="with the distinct keys, G",
        size="4 G (D + samples (D + C)) + 8 G",
    )

    def __init__(
        self, delta: float = 0.6, samples: int = 1, seed: int = 0, theta: float = 0.05
    ) -> None:
        super().__init__()
        self.delta = positive("delta", delta)
        self.samples = at_least_one("samples", samples)
        self.theta = positive("theta", theta)
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Sampled tokens."""
        return int(np.minimum(self._counts, self.samples).sum()) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the groups' first keys and counts, and of the sampled tokens."""
        if self._widths is None:
            return 0
        held = self._first, self._counts, self._keys, self._values
        return sum(array.nbytes for array in held)

    def _init_state(self, width: int, n_values: int) -> None:
        self._first = np.empty((0, width), np.float32)
        self._counts = np.empty(0, np.int64)
        self._keys = np.empty((0, self.samples, width), np.float32)
        self._values = np.empty((0, self.samples, n_values), np.float32)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        parts = [slice(start, start + _BLOCK) for start in range(0, len(keys), _BLOCK)]
        ids = np.concatenate([self._group(keys[part]) for part in parts])
        n = len(self._first)
        self._counts = resized(self._counts, n)
        self._keys, self._values = resized(self._keys, n), resized(self._values, n)
        for group, key, value in zip(ids.tolist(), keys, values, strict=True):
            count = int(self._counts[group])
            self._counts[group] += 1
            # Of count + 1 tokens each is among the samples with the same probability.
            place = count if count < self.samples else int(self._rng.integers(count + 1))
            if place < self.samples:
                self._keys[group, place], self._values[group, place] = key, value
        return ids

    def _group(self, keys: Float32s) -> Ids:
        """The group of each token of a block; column G + t is the one that token t opens, if so."""
        before, ids = len(self._first), np.empty(len(keys), np.int64)
        own = novelty(keys, keys)
        gaps = np.hstack([novelty(keys, self._first), np.full_like(own, np.inf)])
        opened: list[int] = []  # tokens
        for t in range(len(keys)):
            column = int(gaps[t].argmin())  # of equals the oldest
            if not 2 * gaps[t, column] <= self.delta**2:
                column = before + t
                gaps[t + 1 :, column] = own[t + 1 :, t]
                opened.append(t)
            ids[t] = column if column < before else before + opened.index(column - before)
        self._first = np.concatenate([self._first, keys[opened]])
        return ids

    def _samples(self) -> tuple[NDArray[np.bool_], Floats]:
        """Which samples there are, (G, t), and the logarithm of the tokens each stands for."""
        n_samples = np.minimum(self._counts, self.samples)
        held = np.arange(self.samples) < n_samples[:, None]
        return held, np.log(np.repeat(self._counts / n_samples, n_samples))

    def _read(self, queries: Float32s) -> Floats:
        held, stands_for = self._samples()
        logits = similarity(queries, self._keys[held]) / self.theta + stands_for
        return softmax(logits) @ self._values[held]


class SubGen(GroupSamples):
    """Softmax attention from two samples of the stream (Zandieh et al. 2024).

    The normaliser is estimated from groups of keys: a key further than ``delta`` from each group's
    first key opens a group, and each keeps a count and ``samples`` keys. The sum of values is
    estimated from ``values`` tokens, drawn over the whole stream with replacement and with
    probability in proportion to ``|v|^2``; of two estimates, none sees the other. Slots are the
    ``values`` tokens; the groups are in the bytes.

    With values of one length the second sample is even, so an item is recalled if one of its tokens
    is drawn: of 64 items, four tokens each, 63.5 percent with 64 samples and 86.7 with 128.

    >>> subgen = SubGen(values=8)
    >>> subgen.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [2.0], [1.0]])
    array([0, 1, 0])
    >>> len(subgen)
    8
    """

    card = Card(
        mechanism="tokens sampled by the length of their values; groups of keys for the normaliser",
        keeps="sampled tokens, and first key, count and sampled keys of each of G groups",
        growth="with the distinct keys, G; the sampled tokens are fixed",
        size="4 values (D + C) + 4 G D (1 + samples) + 8 G",
    )

    def __init__(
        self,
        values: int = 64,
        delta: float = 0.6,
        samples: int = 1,
        seed: int = 0,
        theta: float = 0.05,
    ) -> None:
        super().__init__(delta, samples, seed, theta)
        self.values = at_least_one("values", values)
        self._drawn = np.random.default_rng((seed, 1))
        self._mass = 0.0  # sum of |v|^2

    def __len__(self) -> int:
        """Sampled tokens with values."""
        return len(self._tokens_keys) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the sampled tokens, and of the groups' first keys, counts and sampled keys."""
        if self._widths is None:
            return 0
        return super().nbytes + self._tokens_keys.nbytes + self._tokens_values.nbytes

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, 0)  # groups keep keys alone
        self._tokens_keys = np.zeros((self.values, width), np.float32)
        self._tokens_values = np.zeros((self.values, n_values), np.float32)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        weights = (values.astype(np.float64) ** 2).sum(axis=1)
        for key, value, weight in zip(keys, values, weights.tolist(), strict=True):
            self._mass += weight
            replaced = self._drawn.random(self.values) * self._mass < weight
            self._tokens_keys[replaced], self._tokens_values[replaced] = key, value
        return super()._write(keys, np.empty((len(keys), 0), np.float32))

    def _read(self, queries: Float32s) -> Floats:
        held, stands_for = self._samples()
        normaliser = similarity(queries, self._keys[held]) / self.theta + stands_for
        logits = similarity(queries, self._tokens_keys) / self.theta
        highest = np.maximum(normaliser.max(axis=1), logits.max(axis=1))[:, None]
        lengths = (self._tokens_values.astype(np.float64) ** 2).sum(axis=1)
        weights = self._mass / (self.values * np.maximum(lengths, 1e-300)) * (lengths > 0)
        sums = (np.exp(logits - highest) * weights) @ self._tokens_values
        answers: Floats = sums / np.exp(normaliser - highest).sum(axis=1, keepdims=True)
        return answers


def resized(rows: NDArray[Any], n: int) -> NDArray[Any]:
    """A copy of the first ``n`` rows, with rows of zeros where there are fewer."""
    copy = np.zeros((n, *rows.shape[1:]), rows.dtype)
    copy[: len(rows)] = rows[:n]
    return copy


class HAM(TokenBaseline):
    """A delta-rule state, and the tokens whose value it misses by more than ``error``.

    Hybrid associative memory (Lufkin et al. 2026): a recurrent network takes in every token, and
    attention keeps those it predicts badly. The error is ``|v - k S| / |v|`` before the state is
    corrected by ``rate k^T (v - k S)``. Nothing is merged: an item that the state has lost is kept
    again.

    We deviate: the state has no gates, and where the source learns how to mix the two, here
    attention answers a query that has a token within ``near`` of it, and the state any other. As
    for every fixed state here, the rows of the state count as slots.

    Of ``error`` from .25 to 1.1, ``rate`` from .05 to 1 and ``near`` from .3 to .9 on the recall
    task, the default finds nearly every item, from the fewest tokens that do. An error above 1
    keeps far fewer and loses some; mixing by a plain sum did worse.

    >>> ham = HAM()
    >>> ham.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [2.0], [1.0]])
    array([ 0,  1, -1])
    >>> ham.read([[1.0, 0.0]]).round(3), len(ham)
    (array([[1.]]), 4)
    """

    card = Card(
        mechanism="a delta-rule state, and attention over tokens it predicted badly",
        keeps="one matrix, and the n tokens that it missed",
        growth="with the mistakes of the state, D + n",
        size="4 D C + 4 n (D + C)",
    )

    def __init__(
        self, error: float = 0.98, rate: float = 0.05, near: float = 0.8, theta: float = 0.05
    ) -> None:
        super().__init__(theta)
        self.error = positive("error", error)
        self.rate = fraction("rate", rate)
        if not -1 <= near <= 1:
            raise ValueError(f"near is a cosine and must lie in [-1, 1], got {near}")
        self.near = near

    def __len__(self) -> int:
        """Rows of the state, and kept tokens."""
        return len(self._state) + super().__len__() if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the kept tokens and of the state."""
        return super().nbytes + (self._state.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._state = np.zeros((width, n_values), np.float32)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        missed = np.empty(len(keys), bool)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            gap = value - key @ self._state
            missed[i] = gap @ gap > self.error**2 * (value @ value)
            self._state += self.rate * np.outer(key, gap)
        self._append(keys[missed], values[missed])
        return np.where(missed, np.arange(self._tokens, self._tokens + len(keys)), -1)

    def _read(self, queries: Float32s) -> Floats:
        gaps = novelty(queries, self._keys)
        answers = (queries @ self._state).astype(np.float64)
        close = gaps.min(axis=1, initial=np.inf) <= 1 - self.near
        if close.any():
            answers[close] = softmax(-gaps[close] / self.theta) @ self._values
        return answers


# A repeat of a key in float32: 1 - cosine no larger than rounding makes it.
_SAME = 1e-6


class NEC(TokenBaseline):
    """A dictionary of ``budget`` keys; the least recently used leaves (Pritzel et al. 2017).

    The memory of neural episodic control. A key that is already there moves its value a part
    ``rate`` of the way; any other is appended. A query is answered by its ``k`` nearest slots,
    weighted by ``1 / (d^2 + delta)``. A slot is used when it is among the ``k`` nearest to a key
    that is written, for the source looks up each state before it writes it.

    We deviate: the search is exact, keys and values are not trained, and a read counts as no use,
    so that it changes nothing. The id of a token is its row, which a later token may take over.

    The source has ``k`` = 50, ``rate`` .1 and ``delta`` .001. Of 1, 4, 10 and 50 neighbours on the
    recall task at budgets of 64 to 256, one does best: with more, distant slots count as used. As
    noise makes every key new, the dictionary holds repeats side by side.

    >>> dictionary = NEC(budget=8, k=1, rate=0.5)
    >>> dictionary.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [5.0], [2.0]])
    array([0, 1, 0])
    >>> dictionary.read([[1.0, 0.0]]), len(dictionary)
    (array([[1.5]]), 2)
    """

    card = Card(
        mechanism="an exact repeat updates its slot; mean of the k nearest by inverse distance",
        keeps="keys that differ at all, the least recently used leaving first",
        growth="with the keys that differ at all, to the budget B",
        size="4 S (D + C) + 8 S",
    )

    def __init__(self, budget: int, k: int = 1, rate: float = 0.1, delta: float = 1e-3) -> None:
        super().__init__()
        self.budget = at_least_one("budget", budget)
        self.k = at_least_one("k", k)
        self.rate = fraction("rate", rate)
        self.delta = positive("delta", delta)

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values, and of the time each was last used."""
        return super().nbytes + (self._used.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._used = np.empty(0, np.int64)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        n = len(self._keys)
        room = min(n + len(keys), self.budget) - n
        self._append(np.zeros_like(keys[:room]), np.zeros_like(values[:room]))
        self._used = np.concatenate([self._used, np.zeros(room, np.int64)])
        ids = np.empty(len(keys), np.int64)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            row, known = self._place(key, n, now=self._tokens + i)
            if known:
                self._values[row] += self.rate * (value - self._values[row])
            else:
                self._keys[row], self._values[row] = key, value
                n = max(n, row + 1)
            ids[i] = row
        self._keys, self._values = self._keys[:n].copy(), self._values[:n].copy()
        self._used = self._used[:n].copy()
        return ids

    def _place(self, key: Float32s, n: int, now: int) -> tuple[int, bool]:
        """The row for a key, one of the first ``n`` or the next, and whether the key is there."""
        similar = similarity(key[None], self._keys[:n])[0]
        near = np.argpartition(-similar, self.k)[: self.k] if n > self.k else np.arange(n)
        self._used[near] = now
        nearest = int(similar.argmax()) if n else -1
        if n and 1 - similar[nearest] <= _SAME:
            return nearest, True
        row = n if n < self.budget else int(self._used.argmin())
        self._used[row] = now
        return row, False

    def _read(self, queries: Float32s) -> Floats:
        gaps = np.maximum(2 - 2 * similarity(queries, self._keys), 0)  # (Q, S), squared
        near = np.argsort(gaps, axis=1, kind="stable")[:, : self.k]  # (Q, k)
        weights = 1 / (np.take_along_axis(gaps, near, axis=1) + self.delta)
        weights /= weights.sum(axis=1, keepdims=True)
        mean: Floats = np.einsum("qk,qkc->qc", weights, self._values[near])
        return mean
