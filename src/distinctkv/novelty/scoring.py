"""Novelty of each row to all that came before it, while a cache learns the rows."""

# L rows, of which some open slots

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache
from ..inputs import faults
from ..rule import Floats, Keys, distances, unit
from ..slots import Ints

SINGLE = 2.0**-24
CHUNK = 1024


class Scored(NamedTuple):
    """Novelty to the nearest slot before a row, that slot, and the slot that the row went to."""

    novelty: Floats  # inf if there was none, nan for a bad row
    nearest: Ints  # -1 if there was none
    slots: Ints  # -1 for a bad row


def learn(cache: Cache, rows: NDArray[Any]) -> Scored:
    """Score rows and write them, as one by one."""
    # Under a budget a slot may go in mid-chunk, and each row must see what is there.
    step = 1 if cache.concentration.bounded else CHUNK
    parts = [_learn(cache, rows[start : start + step]) for start in range(0, len(rows), step)]
    if not parts:
        return Scored(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    return Scored(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _learn(cache: Cache, rows: NDArray[Any]) -> Scored:
    good = ~faults(rows, "cosine")
    if good.all():
        return _learn_good(cache, rows)
    found = Scored(np.full(len(rows), np.nan), *np.full((2, len(rows)), -1))
    # What lies between two bad rows is good; a bad one is counted by the cache.
    edges = np.flatnonzero(np.diff(good, prepend=~good[:1])).tolist()
    for start, stop in pairwise((*edges, len(rows))):
        if not good[start]:
            cache.write(rows[start:stop])
            continue
        for column, part in zip(found, _learn_good(cache, rows[start:stop]), strict=True):
            column[start:stop] = part
    return found


def _learn_good(cache: Cache, rows: NDArray[Any]) -> Scored:
    next_id = cache.n_opened
    keys = unit(rows).astype(np.float32)
    nearest, novelty = cache.novelty(rows)
    slots = cache.write(rows)
    new, places = np.unique(slots, return_index=True)
    places = places[new >= next_id]  # rows that opened slots, in order
    if len(places):
        _meet(keys, places, slots, novelty, nearest)
    return Scored(novelty, nearest, slots)


def _meet(keys: Keys, openers: Ints, slots: Ints, novelty: Floats, nearest: Ints) -> None:
    """Let rows know the slots that were opened before them by rows of the same chunk."""
    scores = keys @ keys[openers].T
    scores[openers[None] >= np.arange(len(keys))[:, None]] = -np.inf
    best = scores.max(axis=1)
    error = 2 * (keys.shape[1] + 16) * SINGLE
    for row in np.flatnonzero(1 - best < novelty + error):
        near = openers[scores[row] >= best[row] - error]
        squared = distances(keys[row], keys[near])
        found = min(float(squared.min()) / 2, 2.0)
        if found < novelty[row]:
            novelty[row], nearest[row] = found, slots[near[squared.argmin()]]
