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
    slots["usage"][:] *= concentration.decay**other.tokens / slots.use_weight
    cooled = (1 - concentration.rate) ** other.tokens * slots.temperature
    temperature = min(1.0, cooled + other.temperature)
    slots.use_weight = 1.0
    ids, novelty = np.empty(len(order), np.int64), np.empty(len(order))
    step = blocked.CHUNK if slots.merge.key == "first" else 1
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        some = {name: column[part] for name, column in theirs.items()}
        some_values = None if payload is None else payload[part]
        ids[part], novelty[part] = _take(slots, concentration, some, some_values, offset)
    slots.tokens += other.tokens
    slots.temperature = temperature
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
    first, last = theirs["first_seen"] + offset, theirs["last_seen"] + offset
    openers = np.flatnonzero(opened)
    start = slots.n
    slots.append(
        theirs["keys"][openers], first[openers], None if values is None else values[openers]
    )
    slots["ids"][start:] = slots.n_opened + np.arange(len(openers))
    slots.n_opened += len(openers)
    novelty = paired_novelty(theirs["keys"], slots["keys"][rows], slots.metric)
    if slots.merge.key != "first":
        _move(slots, theirs, int(rows[0]), fresh=bool(opened[0]))
    np.add.at(slots["usage"], rows, theirs["usage"])
    np.add.at(slots["count"], rows, theirs["count"])
    if values is not None:
        if slots.merge.value == "last":
            # Of several slots that join one, the value seen last stays.
            late = np.argsort(last, kind="stable")
            late = late[last[late] >= slots["last_seen"][rows[late]]]
            slots["values"][rows[late]] = values[late]
        elif slots.merge.value in ("mean", "counts"):
            np.add.at(slots["values"], rows, values)
    np.maximum.at(slots["last_seen"], rows, last)
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


def _move(slots: Slots, theirs: dict[str, NDArray[Any]], row: int, fresh: bool) -> None:
    """Average two means weighted by their tokens; an ema key moves to the later stream."""
    new = theirs["mean"][0]
    if fresh:
        slots["mean"][row] = new
        return
    n_ours, n_new = int(slots["count"][row]), int(theirs["count"][0])
    ema = slots.merge.key == "ema"
    part = 1 - (1 - slots.merge.pace) ** n_new if ema else n_new / (n_ours + n_new)
    mean = slots["mean"][row] + part * (new - slots["mean"][row])
    slots["mean"][row] = mean
    length = float(np.sqrt((mean * mean).sum())) if slots.metric == "cosine" else 1.0
    if length >= 1e-6:
        slots["keys"][row] = mean / length
        slots.update_max_norm(slots["keys"][row : row + 1])
