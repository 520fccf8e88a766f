"""Faster ways to run the same rule: each returns the slot ids of `rule.Rule`, id for id."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..policy import Concentration, Merge, Metric
from ..rule import Floats, Keys
from ..slots import Decision, Ints, Slots
from . import blocked, screened, sequential
from .bounds import paired_novelty

EngineName = Literal["auto", "blocked", "screened", "sequential", "compiled"]


class Engine(NamedTuple):
    """A name, how many tokens it takes at a time, and how it decides them."""

    name: str
    chunk: Callable[[Slots], int]
    decide: Callable[[Slots, Concentration, Keys, Floats], Decision]
    auto: bool = False  # whether another engine may take a chunk that it decides faster


BLOCKED = Engine("blocked", blocked.chunk, blocked.decide)
SCREENED = Engine("screened", screened.chunk, screened.decide)
SEQUENTIAL = Engine("sequential", sequential.chunk, sequential.decide)
COMPILED = Engine("compiled", sequential.chunk, sequential.decide_compiled)
ENGINES = {engine.name: engine for engine in (BLOCKED, SCREENED, SEQUENTIAL, COMPILED)}


def choose(
    name: EngineName, concentration: Concentration, merge: Merge, metric: Metric = "cosine"
) -> Engine:
    """The engine of that name, or the fastest exact one for the policy.

    >>> choose("auto", Concentration.fixed(0.5), Merge()).name
    'blocked'
    """
    unbounded = merge.key == "first" and not concentration.bounded
    if name == "auto":
        return (BLOCKED if unbounded else _fastest())._replace(auto=True)
    if name not in ENGINES:
        raise ValueError(f"engine must be auto, {', '.join(ENGINES)}, got {name!r}")
    if name in ("blocked", "screened") and not unbounded:
        raise ValueError(
            f"the {name} engine needs first-occurrence keys and no budget, got "
            f"key={merge.key!r}, budget {concentration.base}; leave engine='auto'"
        )
    if name == "screened" and metric != "cosine":
        raise ValueError("the screened engine needs metric='cosine'; leave engine='auto'")
    if name == "compiled":
        sequential.compiled()
    return ENGINES[name]


@cache
def _fastest() -> Engine:
    """The compiled engine where numba is installed and works."""
    if find_spec("numba") is None:
        return SEQUENTIAL
    try:
        sequential.compiled()
    except Exception as error:  # numba fails in many ways; a write must not fail for it
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
    novelty_out: Floats | None = None,
) -> Ints:
    """Run the rule over prepared rows; the ids of their slots.

    ``novelty_out`` is filled with the novelty of each token to the key of its slot.
    """
    ids = np.empty(len(keys), np.int64)
    start, growth = 0, 1 / concentration.decay
    while start < len(keys):
        now = _for_next_chunk(slots, concentration, engine)
        use_weights = slots.use_weights(min(now.chunk(slots), len(keys) - start), growth)
        part = slice(start, start + len(use_weights))
        some = None if values is None else values[part]
        decision = now.decide(slots, concentration, keys[part], use_weights)
        if novelty_out is not None:
            novelty_out[part] = _own_novelty(slots, keys[part], decision.columns)
        ids[part] = slots.commit(keys[part], some, times[part], use_weights, decision)
        start += len(use_weights)
    return ids


def _for_next_chunk(slots: Slots, concentration: Concentration, engine: Engine) -> Engine:
    """The fastest exact engine for a chunk: without evictions one product may decide it."""
    if not engine.auto or slots.merge.key != "first":
        return engine
    if slots.n + blocked.chunk(slots) > concentration.base:
        return engine
    if slots.n_pairs < screened.MIN_PAIRS or not screened.pays(slots, concentration):
        return BLOCKED
    return SCREENED


def _own_novelty(slots: Slots, keys: Keys, columns: Ints) -> Floats:
    """Novelty of each token to the key of its slot, as it was before the chunk."""
    own, new = np.empty_like(keys), columns >= slots.n
    old = ~new
    own[old] = slots["keys"][columns[old]]
    own[new] = keys[columns[new] - slots.n]
    return paired_novelty(keys, own, slots.metric)
