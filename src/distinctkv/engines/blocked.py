"""One product per chunk, hot slots first: exact for first-occurrence keys without a budget.

Tokens equal to a slot byte for byte are found by a hash of the row (`HashIndex`). Most others
repeat a frequent item and are certified by a few frequently used slots (`ScoreBounds.of_chunk`).
The rest are compared with every slot, and novel tokens are then compared with each other in order.
Decisions within the rounding error are made again by the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..policy import Concentration
from ..rule import Floats, Keys
from ..slots import Bools, Decision, Ints, Slots
from . import ann
from .bounds import ScoreBounds

# L tokens of a chunk, S slots before it, D key size
Hashes = NDArray[np.uint32]

CHUNK = 2048
TIERS = (32, 128, 512, 2048)  # ends of the first blocks; later blocks have the size of the last
MIN_REPEATS = 0.1  # share of tokens that must be exact repeats for the hash index to pay
PAUSE = 64  # chunks to skip before trying the hash index again
FEW = 8  # tokens for which one larger product is faster than several small ones
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio


class HashIndex:
    """A sorted table from the hash of a key to its row; it pauses while nothing repeats exactly.

    A slot equal to a token has distance 0, and slots differ from each other, so it is the nearest.
    """

    def __init__(self) -> None:
        self._pause = 0
        self._clear()

    def _clear(self) -> None:
        self._hashes: Hashes = np.empty(0, np.uint32)
        self._rows = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._hashes.nbytes + self._rows.nbytes

    def follow(self, rows: Ints, n_rows: int) -> None:
        """Drop the table: rows have moved."""
        self._clear()

    def find(self, slots: Keys, keys: Keys, *, always: bool = False) -> Ints | None:
        """Row of the slot equal to each key, or -1; None if nothing was looked up."""
        if self._pause and not always:
            self._pause -= 1
            return None
        self._add_new(slots)
        hashes = row_hashes(keys)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        rows = np.where(self._hashes[place] == hashes, self._rows[place], -1).astype(np.int64)
        found = np.flatnonzero(rows >= 0)
        # Different rows may share a hash: compare the bytes.
        same = (slots[rows[found]].view(np.uint32) == keys[found].view(np.uint32)).all(axis=1)
        rows[found[~same]] = -1
        if same.sum() < MIN_REPEATS * len(keys) and not always:
            self._pause = PAUSE
            self._clear()
        return rows

    def _add_new(self, slots: Keys) -> None:
        """Add the slots opened since the last look-up."""
        known = len(self._rows)
        if known == len(slots):
            return
        new = row_hashes(slots[known:])
        order = np.argsort(new)
        place = np.searchsorted(self._hashes, new[order])
        self._hashes = np.insert(self._hashes, place, new[order])
        self._rows = np.insert(self._rows, place, (known + order).astype(np.int32))


def row_hashes(keys: Keys) -> Hashes:
    """A 32-bit hash of each row, the same wherever the row stands.

    >>> bool(np.unique(row_hashes(np.eye(5, dtype=np.float32))).size == 5)
    True
    """
    keys = np.ascontiguousarray(keys)
    odd = keys.shape[1] % 2
    words = keys.view(np.uint32).astype(np.uint64) if odd else keys.view(np.uint64)
    # Floats of few digits end in zero bits, which a product keeps: mix the high half into the low.
    words = words * HASH_FACTOR
    words ^= words >> np.uint64(32)
    total: NDArray[np.uint64] = np.einsum("ij,j->i", words, _odd_factors(words.shape[1]))
    # The low bits of a sum of products are poorly mixed: take the high half. If two slots share a
    # hash, the second is not found here and its repeats are searched for like other tokens.
    return (total >> np.uint64(32)).astype(np.uint32)


@cache
def _odd_factors(width: int) -> NDArray[np.uint64]:
    factors = np.random.default_rng(0).integers(1, 2**63, width, dtype=np.uint64)
    return factors | np.uint64(1)


@dataclass(slots=True)
class Match:
    """The best score of each token so far, its column, and the best score of any other column."""

    score: Floats
    column: Ints
    second: Floats
    n_pairs: int = 0  # comparisons of a token with a slot

    @classmethod
    def first(cls, bounds: ScoreBounds, scores: NDArray[Any]) -> Match:
        """The match of every token within a first block of scores."""
        best = scores.argmax(axis=1)
        top = scores[np.arange(len(scores)), best].astype(np.float64)
        second = np.full(len(scores), -inf)
        _raise_second(second, scores, best, _close(bounds, slice(None), top))
        return cls(top, best, second)

    def offer(
        self, bounds: ScoreBounds, tokens: Ints, scores: NDArray[Any], columns: Ints | int
    ) -> None:
        """Take a further block of scores into account for some tokens."""
        best = scores.argmax(axis=1)
        top = scores[np.arange(len(tokens)), best].astype(np.float64)
        old = self.score[tokens]
        second = np.maximum(self.second[tokens], np.minimum(old, top))
        _raise_second(second, scores, best, _close(bounds, tokens, top))
        better = np.flatnonzero(top > old)
        self.score[tokens[better]] = top[better]
        self.second[tokens] = second
        found = best + columns if isinstance(columns, int) else columns[best]
        self.column[tokens[better]] = found[better]


def decide(slots: Slots, concentration: Concentration, keys: Keys, use_weights: Floats) -> Decision:
    """Slots of a chunk of tokens, as `rule.Rule` chooses them one by one."""
    if slots.n > TIERS[0]:
        slots.sort_by_use(4 * CHUNK)
    bounds = ScoreBounds.of_chunk(keys, concentration.tau, slots.metric, slots.max_norm)
    if slots.n:
        always = bounds.rows.dtype == np.float64  # a search is expensive
        known = slots.index(HashIndex).find(slots["keys"], keys, always=always)
        match = nearest(slots, bounds, known)
        slots.count_pairs(len(keys), match.n_pairs)
        certified = match.score > bounds.certain_above
        novel = _novel(slots, bounds, match, certified)
    else:
        none = np.full(len(keys), -inf)
        match = Match(none, np.full(len(keys), -1), none.copy())
        certified, novel = np.zeros(len(keys), bool), np.ones(len(keys), bool)
    leaders = _leaders(bounds, np.flatnonzero(novel))
    columns = match.column
    if len(leaders):
        opened = np.zeros(len(keys), bool)
        opened[leaders] = True
        columns[leaders] = slots.n + leaders
        rest = np.flatnonzero(~(certified | opened))
        rest = rest[rest > leaders[0]]
        _join(slots, bounds, match, leaders, rest)
    else:
        opened = novel
    return Decision(
        columns, opened, update_temperature(slots.temperature, opened, concentration.rate)
    )


def chunk(slots: Slots) -> int:
    """Tokens per chunk: few while most are novel, because novel tokens are compared in pairs."""
    return min(CHUNK, max(64, 4 * slots.n))


def nearest(slots: Slots, bounds: ScoreBounds, known: Ints | None = None) -> Match:
    """Best slot of each token among the slots before the chunk.

    ``known`` has the row of the slot equal to each token, or -1; equal tokens need no search.
    """
    keys, start = slots["keys"], 0
    if known is None or (known < 0).all():
        start = TIERS[0] if len(bounds.keys) > FEW else TIERS[-2]
        match = Match.first(bounds, bounds.scores(slice(None), keys[:start]))
        match.n_pairs = len(bounds.keys) * min(start, slots.n)
    else:
        match = Match(np.where(known < 0, -inf, inf), known, np.full(len(known), -inf))
    todo = np.flatnonzero(match.score <= bounds.certain_above)
    while start < slots.n and len(todo):
        if start == TIERS[-1]:
            certain, rows, scores = ann.certify(slots, bounds, todo)
            match.column[certain], match.score[certain] = rows, scores
            todo = np.setdiff1d(todo, certain, assume_unique=True)
        stop = next((tier for tier in TIERS if tier > start), start + TIERS[-1])
        match.offer(bounds, todo, bounds.scores(todo, keys[start:stop]), start)
        match.n_pairs += len(todo) * (min(stop, slots.n) - start)
        todo = todo[match.score[todo] <= bounds.certain_above[todo]]
        start = stop
    return match


def exact(slots: Slots, bounds: ScoreBounds, token: int, leaders: Ints) -> tuple[int, bool]:
    """The reference's column for one token, among slots and leaders before it; is it novel?"""
    leaders = leaders[leaders < token]
    keys, ids, columns = slots["keys"], slots["ids"], np.arange(slots.n)
    if len(leaders):
        keys = np.concatenate([keys, bounds.keys[leaders]])
        ids = np.concatenate([ids, slots.n_opened + np.arange(len(leaders))])
        columns = np.concatenate([columns, slots.n + leaders])
    scores = bounds.scores(np.array([token]), keys)[0]
    near = np.flatnonzero(scores >= scores.max() - 2 * bounds.error[token])
    found, novel = bounds.exact_nearest(token, keys[near], ids[near])
    return int(columns[near[found]]), novel


def update_temperature(temperature: float, opened: Bools, rate: float) -> float:
    """The temperature after these tokens (paper, eq. 4)."""
    openers = np.flatnonzero(opened)
    if len(openers) * 16 > len(opened) or len(opened) <= FEW:
        for one in opened.tolist():
            temperature = (1 - rate) * temperature + rate * one
        return temperature
    # Between openings it is multiplied by the same factor, token after token.
    for n_merged in np.diff(openers, prepend=-1, append=len(opened)) - 1:
        factors = np.full(n_merged + 1, 1 - rate)
        factors[0] = temperature
        before_opening = float(np.multiply.accumulate(factors)[-1])
        temperature = (1 - rate) * before_opening + rate
    return before_opening


def tied(bounds: ScoreBounds, match: Match, tokens: Ints) -> Bools:
    """Which tokens have two best slots so near each other that rounding may have chosen."""
    return np.asarray(match.score[tokens] - match.second[tokens] <= 2 * bounds.error[tokens])


def _novel(slots: Slots, bounds: ScoreBounds, match: Match, certified: Bools) -> Bools:
    """Which tokens are novel to the slots that were there before the chunk."""
    novel = match.score < bounds.novel_below
    tokens = np.flatnonzero(~certified)
    if len(tokens) == 0:
        return novel
    gap = match.score[tokens] - bounds.novel_below[tokens]
    edge, equal = np.abs(gap) <= bounds.error[tokens], tied(bounds, match, tokens)
    alone = tokens[edge & ~equal]
    novel[alone] = bounds.exactly_novel(alone, slots["keys"][match.column[alone]])
    for token in tokens[equal & (edge | (gap > 0))]:
        match.column[token], novel[token] = exact(slots, bounds, int(token), match.column[:0])
    match.score[novel] = -inf
    return novel


def _close(bounds: ScoreBounds, tokens: Ints | slice, top: Floats) -> Ints:
    """Places where a runner-up matters: the token may merge, and has no certificate."""
    floor = bounds.novel_below[tokens] - 4 * bounds.error[tokens]
    return np.flatnonzero((top > floor) & (top <= bounds.certain_above[tokens]))


def _raise_second(second: Floats, scores: NDArray[Any], best: Ints, close: Ints) -> None:
    """Raise the runner-up of these rows to the best score that is not the best."""
    if len(close):
        rows = scores[close]
        rows[np.arange(len(close)), best[close]] = -inf
        second[close] = np.maximum(second[close], rows.max(axis=1))


def _leaders(bounds: ScoreBounds, novel: Ints) -> Ints:
    """Of tokens novel to the old slots, those that open: no earlier opener is within tau."""
    if len(novel) == 0:
        return novel
    scores = bounds.scores(novel, bounds.keys[novel])
    low, error = bounds.novel_below[novel], bounds.error[novel]
    covered, leaders = np.zeros(len(novel), bool), []
    for j in range(len(novel)):
        if covered[j]:
            continue
        leaders.append(j)
        gap = scores[j + 1 :, j] - low[j + 1 :]
        later = covered[j + 1 :]
        later |= gap > error[j + 1 :]
        edge = np.flatnonzero((np.abs(gap) <= error[j + 1 :]) & ~later)
        if len(edge):
            tokens = novel[j + 1 + edge]
            later[edge] = ~bounds.exactly_novel(tokens, bounds.keys[novel[j]][None])
    return novel[leaders]


def _join(slots: Slots, bounds: ScoreBounds, match: Match, leaders: Ints, rest: Ints) -> None:
    """Let tokens that were not certified choose again, among the slots opened before them too."""
    if len(rest) == 0:
        return
    scores = bounds.scores(rest, bounds.keys[leaders])
    scores[leaders[None, :] > rest[:, None]] = -inf
    match.offer(bounds, rest, scores, slots.n + leaders)
    for token in rest[tied(bounds, match, rest)]:
        match.column[token], _ = exact(slots, bounds, int(token), leaders)
