"""One product per chunk, hot slots first: exact for first-occurrence keys without a budget.

Most tokens repeat a popular thing and are certified by a few hot slots (`Geometry.of`). The rest
are compared with every slot, and what is novel is settled in order within the chunk. Whatever
rounding could have decided is decided again by the law.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..policy import Concentration
from ..rule import Floats, Keys
from ..slots import Bools, Decision, Ints, Slots
from . import ann
from .bounds import Geometry

CHUNK = 2048
TIERS = (32, 128, 512, 2048)  # ends of the first blocks; later blocks have the size of the last


@dataclass(slots=True)
class Match:
    """The best score of each token so far, its column, and the best score of any other column."""

    score: Floats
    column: Ints
    second: Floats

    @classmethod
    def first(cls, space: Geometry, scores: NDArray[Any]) -> Match:
        """The match of every token within a first block of scores."""
        best = scores.argmax(axis=1)
        top = scores[np.arange(len(scores)), best].astype(np.float64)
        second = np.full(len(scores), -inf)
        _raise_second(second, scores, best, _close(space, slice(None), top))
        return cls(top, best, second)

    def offer(
        self, space: Geometry, tokens: Ints, scores: NDArray[Any], columns: Ints | int
    ) -> None:
        """Take a further block of scores into account for some tokens."""
        best = scores.argmax(axis=1)
        top = scores[np.arange(len(tokens)), best].astype(np.float64)
        old = self.score[tokens]
        second = np.maximum(self.second[tokens], np.minimum(old, top))
        _raise_second(second, scores, best, _close(space, tokens, top))
        better = np.flatnonzero(top > old)
        self.score[tokens[better]] = top[better]
        self.second[tokens] = second
        found = best + columns if isinstance(columns, int) else columns[best]
        self.column[tokens[better]] = found[better]


def decide(slots: Slots, concentration: Concentration, keys: Keys, worths: Floats) -> Decision:
    """Slots of a chunk of tokens, as `rule.Rule` would choose them one by one."""
    order_by_use(slots)
    space = Geometry.of(keys, concentration.tau, slots.metric, slots.reach)
    if slots.n:
        known = slots.repeats.find(slots["keys"], keys, always=space.rows.dtype == np.float64)
        match = nearest(slots, space, known)
        certified = match.score > space.sure
        novel = _novel(slots, space, match, certified)
    else:
        match = Match(*(np.full(len(keys), fill) for fill in (-inf, -1, -inf)))
        certified, novel = np.zeros(len(keys), bool), np.ones(len(keys), bool)
    leaders = _leaders(space, np.flatnonzero(novel))
    columns = match.column
    if len(leaders):
        opened = np.zeros(len(keys), bool)
        opened[leaders] = True
        columns[leaders] = slots.n + leaders
        rest = np.flatnonzero(~(certified | opened))
        rest = rest[rest > leaders[0]]
        _join(slots, space, match, leaders, rest)
    else:
        opened = novel
    return Decision(columns, opened, warm(slots.temperature, opened, concentration.rate))


def chunk(slots: Slots) -> int:
    """Tokens to take at a time: few while most are novel, for those meet each other in pairs."""
    return min(CHUNK, max(64, 4 * slots.n))


def order_by_use(slots: Slots) -> None:
    """Bring the most used slots to the front, at times ever further apart."""
    if slots.n > TIERS[0] and slots.tokens > 1.5 * slots.sorted_at + 4 * CHUNK:
        slots.take(np.argsort(-slots["count"], kind="stable"))
        slots.sorted_at = slots.tokens


def nearest(slots: Slots, space: Geometry, known: Ints | None = None) -> Match:
    """Best slot of each token among those that were there before the chunk.

    ``known`` names the slots of exact repeats, which need no search, and has -1 for the others.
    """
    keys, start = slots["keys"], 0
    if known is None or (known < 0).all():
        start = TIERS[0]
        match = Match.first(space, space.scores(slice(None), keys[:start]))
    else:
        match = Match(np.where(known < 0, -inf, inf), known, np.full(len(known), -inf))
    todo = np.flatnonzero(match.score <= space.sure)
    while start < slots.n and len(todo):
        if start == TIERS[-1]:
            proven, rows, scores = ann.prove(slots, space, todo)
            match.column[proven], match.score[proven] = rows, scores
            todo = np.setdiff1d(todo, proven, assume_unique=True)
        stop = next((tier for tier in TIERS if tier > start), start + TIERS[-1])
        match.offer(space, todo, space.scores(todo, keys[start:stop]), start)
        todo = todo[match.score[todo] <= space.sure[todo]]
        start = stop
    return match


def exact(slots: Slots, space: Geometry, token: int, leaders: Ints) -> tuple[int, bool]:
    """The law's column for one token among the slots and the leaders before it; is it novel?"""
    leaders = leaders[leaders < token]
    keys, ids, columns = slots["keys"], slots["ids"], np.arange(slots.n)
    if len(leaders):
        keys = np.concatenate([keys, space.keys[leaders]])
        ids = np.concatenate([ids, slots.born + np.arange(len(leaders))])
        columns = np.concatenate([columns, slots.n + leaders])
    scores = space.scores(np.array([token]), keys)[0]
    near = np.flatnonzero(scores >= scores.max() - 2 * space.error[token])
    found, novel = space.settle(token, keys[near], ids[near])
    return int(columns[near[found]]), novel


def warm(temperature: float, opened: Bools, rate: float) -> float:
    """The temperature after these tokens (paper, eq. 4)."""
    births = np.flatnonzero(opened)
    if len(births) * 16 > len(opened):
        for one in opened.tolist():
            temperature = (1 - rate) * temperature + rate * one
        return temperature
    # Between openings it only cools, by the same product token after token.
    for cold in np.diff(births, prepend=-1, append=len(opened)) - 1:
        cooling = np.full(cold + 1, 1 - rate)
        cooling[0] = temperature
        cooled = float(np.multiply.accumulate(cooling)[-1])
        temperature = (1 - rate) * cooled + rate
    return cooled


def tied(space: Geometry, match: Match, tokens: Ints) -> Bools:
    """Which tokens have two best slots so near each other that rounding may have chosen."""
    return np.asarray(match.score[tokens] - match.second[tokens] <= 2 * space.error[tokens])


def _novel(slots: Slots, space: Geometry, match: Match, certified: Bools) -> Bools:
    """Which tokens are novel to the slots that were there before the chunk."""
    novel = match.score < space.novel
    tokens = np.flatnonzero(~certified)
    gap = match.score[tokens] - space.novel[tokens]
    edge, equal = np.abs(gap) <= space.error[tokens], tied(space, match, tokens)
    alone = tokens[edge & ~equal]
    novel[alone] = space.beyond(alone, slots["keys"][match.column[alone]])
    for token in tokens[equal & (edge | (gap > 0))]:
        match.column[token], novel[token] = exact(slots, space, int(token), match.column[:0])
    match.score[novel] = -inf
    return novel


def _close(space: Geometry, tokens: Ints | slice, top: Floats) -> Ints:
    """Places where a runner-up matters: the token may merge, and has no certificate."""
    floor = space.novel[tokens] - 4 * space.error[tokens]
    return np.flatnonzero((top > floor) & (top <= space.sure[tokens]))


def _raise_second(second: Floats, scores: NDArray[Any], best: Ints, close: Ints) -> None:
    """Raise the runner-up of these rows to the best score that is not the best."""
    if len(close):
        rows = scores[close]
        rows[np.arange(len(close)), best[close]] = -inf
        second[close] = np.maximum(second[close], rows.max(axis=1))


def _leaders(space: Geometry, novel: Ints) -> Ints:
    """Of tokens novel to the old slots, those that open: no earlier opener is within tau."""
    if len(novel) == 0:
        return novel
    scores = space.scores(novel, space.keys[novel])
    low, error = space.novel[novel], space.error[novel]
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
            later[edge] = ~space.beyond(tokens, space.keys[novel[j]][None])
    return novel[leaders]


def _join(slots: Slots, space: Geometry, match: Match, leaders: Ints, rest: Ints) -> None:
    """Let tokens that were not certified choose again, among the slots opened before them too."""
    if len(rest) == 0:
        return
    scores = space.scores(rest, space.keys[leaders])
    scores[leaders[None, :] > rest[:, None]] = -inf
    match.offer(space, rest, scores, slots.n + leaders)
    for token in rest[tied(space, match, rest)]:
        match.column[token], _ = exact(slots, space, int(token), leaders)
