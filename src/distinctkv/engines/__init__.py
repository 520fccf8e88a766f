"""Faster ways to run the same rule: each returns the slot ids of `rule.Rule`, id for id."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..policy import Concentration, Merge
from ..rule import Floats, Keys
from ..slots import Decision, Ints, Slots
from . import blocked, sequential

EngineName = Literal["auto", "blocked", "sequential", "compiled"]


class Engine(NamedTuple):
    """A name, how many tokens it takes at a time, and how it decides them."""

    name: str
    chunk: Callable[[Slots], int]
    decide: Callable[[Slots, Concentration, Keys, Floats], Decision]
    yields: bool = False  # to the blocked engine, while a chunk cannot exceed the budget


BLOCKED = Engine("blocked", blocked.chunk, blocked.decide)
SEQUENTIAL = Engine("sequential", sequential.chunk, sequential.decide)
COMPILED = Engine("compiled", sequential.chunk, sequential.decide_compiled)


def choose(name: EngineName, concentration: Concentration, merge: Merge) -> Engine:
    """The engine of that name, or the fastest exact one for the policy.

    >>> choose("auto", Concentration.fixed(0.5), Merge()).name
    'blocked'
    """
    plain = merge.key == "first" and not concentration.bounded
    if name == "blocked" and not plain:
        raise ValueError(
            "the blocked engine needs first-occurrence keys and no budget, got "
            f"key={merge.key!r}, budget {concentration.base}; leave engine='auto'"
        )
    if name == "auto":
        return BLOCKED if plain else _fastest()._replace(yields=merge.key == "first")
    for engine in (BLOCKED, SEQUENTIAL, COMPILED):
        if engine.name == name:
            if engine is COMPILED:
                sequential.compiled()
            return engine
    raise ValueError(f"engine must be auto, blocked, sequential or compiled, got {name!r}")


@cache
def _fastest() -> Engine:
    """The compiled engine where numba is installed and works."""
    if find_spec("numba") is None:
        return SEQUENTIAL
    try:
        sequential.compiled()
    except Exception as error:  # numba fails in many ways, and none should stop a stream
        warnings.warn(
            f"numba is installed but fails here ({error}); the sequential engine takes over",
            stacklevel=4,
        )
        return SEQUENTIAL
    return COMPILED


def write(
    slots: Slots,
    concentration: Concentration,
    engine: Engine,
    keys: Keys,
    values: NDArray[Any] | None,
    times: Ints,
) -> Ints:
    """Run the rule over rows that are ready to compare; the ids of their slots."""
    ids = np.empty(len(keys), np.int64)
    start, growth = 0, 1 / concentration.decay
    while start < len(keys):
        roomy = slots.n + blocked.chunk(slots) <= concentration.base
        now = BLOCKED if engine.yields and roomy else engine
        worths = slots.worths(min(now.chunk(slots), len(keys) - start), growth)
        part = slice(start, start + len(worths))
        some = None if values is None else values[part]
        decision = now.decide(slots, concentration, keys[part], worths)
        ids[part] = slots.commit(keys[part], some, times[part], worths, decision)
        start += len(worths)
    return ids
