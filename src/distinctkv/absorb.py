"""Merge the slots of one cache into another, so that caches built on shards become one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engines import blocked
from .engines.bounds import paired_novelty
from .policy import Concentration
from .rule import Floats, distances, from_distance
from .slots import Ints, Slots


def absorb(
    slots: Slots,
    concentration: Concentration,
    other: Slots,
    values: NDArray[Any] | None,
    offset: int,
) -> tuple[Ints, Floats]:
    """Run the rule over the other's slots, oldest first; ids here, and novelty to the slot here.

    The other's stream counts as having followed ours, ``offset`` tokens later: our usage decays by
    its length, and its temperature continues from ours.
    """
    order = np.argsort(other["ids"])
    theirs = {name: other[name][order] for name in other.columns if name != "values"}
    payload = None if values is None else values[order]
    theirs["usage"] = theirs["usage"] / other.use_weight
    slots.fade(concentration.decay**other.tokens)
    cooled = (1 - concentration.rate) ** other.tokens * slots.temperature
    temperature = min(1.0, cooled + other.temperature)
    ids, novelty = np.empty(len(order), np.int64), np.empty(len(order))
    step = blocked.CHUNK if slots.merge.key == "first" else 1
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        some = {name: column[part] for name, column in theirs.items()}
        some_values = None if payload is None else payload[part]
        ids[part], novelty[part] = _take(slots, concentration, some, some_values, offset)
    slots.follow_stream(other.tokens, temperature)
    shrink(slots, concentration)
    return ids, novelty


def shrink(slots: Slots, concentration: Concentration) -> None:
    """Evict the least used until the budget holds (paper, eq. 6)."""
    budget = concentration.base + concentration.gain * slots.temperature
    if slots.n > budget:
        rank = np.lexsort((slots["ids"], slots["last_seen"], slots["usage"]))
        slots.take(np.sort(rank[slots.n - int(budget) :]))
        slots.compact()


def _take(
    slots: Slots,
    concentration: Concentration,
    theirs: dict[str, NDArray[Any]],
    values: NDArray[Any] | None,
    offset: int,
) -> tuple[Ints, Floats]:
    """Merge some slots; the id here of each, and its novelty to the key that it met."""
    rows, opened = _assign(slots, concentration, theirs)
    openers = np.flatnonzero(opened)
    first, last = theirs["first_seen"] + offset, theirs["last_seen"] + offset
    some = None if values is None else values[openers]
    slots.open(theirs["keys"][openers], first[openers], some)
    novelty = paired_novelty(theirs["keys"], slots["keys"][rows], slots.metric)
    slots.merge_slots(rows, opened, theirs, values, last)
    return slots["ids"][rows], novelty


def _assign(
    slots: Slots, concentration: Concentration, theirs: dict[str, NDArray[Any]]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Row of each of their slots here, counting those that open, and whether it opens."""
    if slots.merge.key == "first":
        decision = blocked.decide(slots, concentration, theirs["keys"], theirs["usage"])
        number = slots.n + np.cumsum(decision.opened) - 1
        fresh = decision.columns >= slots.n
        rows = decision.columns.copy()
        rows[fresh] = number[rows[fresh] - slots.n]
        return rows, decision.opened
    if slots.n == 0:
        return np.zeros(1, np.int64), np.ones(1, bool)
    squared = distances(theirs["keys"][0], slots["keys"])
    equal = np.flatnonzero(squared == squared.min())
    row = equal[slots["ids"][equal].argmin()]
    novel = from_distance(float(squared[row]), slots.metric) > concentration.tau
    return np.array([slots.n if novel else row]), np.array([novel])
