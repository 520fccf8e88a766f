"""Token by token over rows of scores: exact for budgets and for keys that move.

Evicting a slot only blanks a column of the scores, and opening one fills a column, so one product
per chunk serves them all. `scan` is written so that numba can compile it as it stands; compiled or
not it takes the same decisions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from math import inf
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..extras import install
from ..policy import Concentration
from ..rule import Floats, Keys
from ..slots import Bools, Decision, Ints, Slots
from .bounds import Geometry

# L tokens, S slots before the chunk, N = S + L columns, D key size
CHUNK = 256
CELLS = 1 << 22  # scores held at once


class Table(NamedTuple):
    """The columns a scan works on: slots, then one place for each token that may open one."""

    scores: NDArray[Any]  # (L, N), -inf where no slot is
    tokens: NDArray[Any]  # (L, L) score of each token against each token
    keys: Keys  # (N, D)
    ids: Ints
    usage: Floats
    hits: Ints
    last: Ints
    means: Floats  # (N, D) behind keys that move
    alive: Bools


class Numbers(NamedTuple):
    """The policy as plain numbers."""

    tau: float
    base: float
    gain: float
    rate: float
    pace: float
    mean: bool
    moving: bool
    cosine: bool
    halved: bool


def chunk(slots: Slots) -> int:
    """Tokens to take at a time, so that the scores stay in the cache."""
    most = CHUNK if slots.merge.key == "first" else CHUNK // 4  # a key that moves is rescored
    return max(16, min(most, CELLS // (slots.n + 1)))


def decide(slots: Slots, concentration: Concentration, keys: Keys, worths: Floats) -> Decision:
    """Decide a chunk in NumPy."""
    return _decide(slots, concentration, keys, worths, lambda _: scan)


def decide_compiled(
    slots: Slots, concentration: Concentration, keys: Keys, worths: Floats
) -> Decision:
    """Decide a chunk with the scan compiled by numba, or in NumPy if that fails."""
    return _decide(slots, concentration, keys, worths, _compiled_or_not)


def _compiled_or_not(kind: np.dtype[Any]) -> Any:  # noqa: ANN401
    try:
        return tried(kind)
    except Exception as error:  # numba fails in many ways, and none should stop a stream
        warnings.warn(
            f"numba failed ({error}); the sequential engine takes over for a chunk", stacklevel=4
        )
        return scan


@cache
def tried(kind: np.dtype[Any]) -> Any:  # noqa: ANN401
    """The compiled scan after a first run on scores of this type, when numba has done its work.

    An error of a later run is not numba's but a signal handler's, say, and goes to the caller.
    """
    run, cell, key = compiled(), np.zeros((1, 1), kind), np.zeros((1, 1), np.float32)
    whole, real, flag = np.zeros(1, np.int64), np.ones(1), np.zeros(1, bool)
    table = Table(cell, cell, key, whole, real, whole, whole, np.empty((0, 0)), flag)
    policy = Numbers(0.0, 1.0, 0.0, 1.0, 1.0, mean=False, moving=False, cosine=False, halved=False)
    run(table, policy, key, real, real, real, real, 0.0, 0, whole, flag)
    return run


@cache
def compiled() -> Any:  # noqa: ANN401
    """The scan and what it calls, compiled."""
    try:
        import numba
    except ImportError as error:
        raise ImportError(f"the compiled engine needs numba: {install('fast')}") from error
    space = dict(globals())
    for function in (nearest, weakest, move, rescore, scan):
        plain = FunctionType(function.__code__, space, function.__name__)
        try:
            space[function.__name__] = numba.njit(plain, cache=True)
        except RuntimeError:  # there is no folder that it could be kept in
            space[function.__name__] = numba.njit(plain)
    return space["scan"]


def _decide(
    slots: Slots,
    concentration: Concentration,
    keys: Keys,
    worths: Floats,
    scan_of: Callable[[np.dtype[Any]], Any],
) -> Decision:
    space = Geometry.of(keys, concentration.tau, slots.metric, slots.reach)
    run = scan_of(space.rows.dtype)
    moving = slots.merge.key != "first"
    table = _table(slots, space)
    numbers = Numbers(
        *(concentration.tau, concentration.base, concentration.gain, concentration.rate),
        *(slots.merge.pace, slots.merge.key == "mean", moving),
        *(slots.metric == "cosine", space.halved),
    )
    # Keys that move may come within tau of each other, and then certify nothing.
    sure = np.full(len(keys), inf) if moving else space.sure
    columns, opened = np.empty(len(keys), np.int64), np.zeros(len(keys), bool)
    temperature = run(
        *(table, numbers, keys, space.novel, sure, space.error),
        *(worths, slots.temperature, slots.born, columns, opened),
    )
    evicted = slots.n + opened.sum() - table.alive.sum()
    moved = (table.keys, table.means) if moving else None
    return Decision(columns, opened, temperature, table.alive if evicted else None, moved)


def _table(slots: Slots, space: Geometry) -> Table:
    n_tokens, n_slots = len(space.keys), slots.n
    keys = np.concatenate([slots["keys"], space.keys])
    scores = space.scores(slice(None), keys)
    tokens = scores[:, n_slots:].copy()
    scores[:, n_slots:] = -inf

    def column(name: str, fill: float) -> NDArray[Any]:
        dtype = slots[name].dtype
        return np.concatenate([slots[name], np.full(n_tokens, fill, dtype)])

    means = np.concatenate([slots["mean"], space.keys]) if "mean" in slots else np.empty((0, 0))
    alive = np.arange(n_slots + n_tokens) < n_slots
    last = column("last_seen", 0)
    # Only the order of last uses matters here: the chunk's own come after all others.
    base = int(last.max(initial=0)) + 1
    last[n_slots:] = base
    return Table(
        *(scores, tokens, keys, column("ids", 0), column("usage", 0.0), column("count", 0)),
        *(last, means, alive),
    )


def scan(
    table: Table,
    policy: Numbers,
    rows: Keys,
    novel: Floats,
    sure: Floats,
    error: Floats,
    worths: Floats,
    temperature: float,
    born: int,
    columns: Ints,
    opened: Bools,
) -> float:
    """Fill ``columns`` and ``opened``, and the table with what is left; return the temperature."""
    n_tokens = len(rows)
    n_before = len(table.ids) - n_tokens
    n_slots, base = n_before, table.last[-1]
    for t in range(n_tokens):
        c, new = nearest(table, policy, rows[t], t, novel[t], sure[t], error[t])
        if new:
            c = n_before + t
            table.ids[c], table.alive[c] = born, True
            table.scores[t + 1 :, c] = table.tokens[t + 1 :, t]
            born, n_slots = born + 1, n_slots + 1
        table.usage[c] += worths[t]
        table.hits[c] += 1
        table.last[c] = base + t
        if policy.moving and not new and move(table, policy, rows[t], c):
            rescore(table, policy, rows, t, c)
        columns[t], opened[t] = c, new
        temperature = (1 - policy.rate) * temperature + policy.rate * new
        while n_slots > policy.base + policy.gain * temperature:
            gone = weakest(table, c if new else -1)
            table.alive[gone] = False
            table.scores[t + 1 :, gone] = -np.inf
            n_slots -= 1
    return temperature


def nearest(
    table: Table, policy: Numbers, row: Keys, t: int, novel: float, sure: float, error: float
) -> tuple[int, bool]:
    """Column of the nearest slot alive, and whether the token is novel; the law settles doubt."""
    scores = table.scores[t]
    c = int(scores.argmax())
    best = scores[c]
    if best > sure:
        return c, False
    if best == -np.inf:
        return c, True
    rivals = np.nonzero(scores >= best - 2 * error)[0]
    if len(rivals) == 1 and abs(best - novel) > error:
        return c, bool(best < novel)
    least = np.inf
    for r in rivals:
        gaps = table.keys[r].astype(np.float64) - row.astype(np.float64)
        squared = np.cumsum(gaps * gaps)[-1]
        if squared < least or (squared == least and table.ids[r] < table.ids[c]):
            least, c = squared, int(r)
    distance = min(least / 2, 2.0) if policy.cosine else least
    return c, bool(distance > policy.tau)


def weakest(table: Table, spare: int) -> int:
    """Column of the least used slot: of equals the longest idle, then the oldest."""
    purse = np.where(table.alive, table.usage, np.inf)
    if spare >= 0:
        purse[spare] = np.inf
    poorest = np.nonzero(purse == purse.min())[0]
    found = poorest[0]
    for c in poorest:
        idle = table.last[c] < table.last[found]
        if idle or (table.last[c] == table.last[found] and table.ids[c] < table.ids[found]):
            found = c
    return int(found)


def move(table: Table, policy: Numbers, row: Keys, c: int) -> bool:
    """Bring a slot's key towards a repeat, as `rule.move` does; False if it stays."""
    step = 1 / table.hits[c] if policy.mean else policy.pace
    mean = table.means[c] + (row.astype(np.float64) - table.means[c]) * step
    table.means[c] = mean
    length = np.sqrt(np.cumsum(mean * mean)[-1]) if policy.cosine else 1.0
    if length < 1e-6:
        return False
    table.keys[c] = (mean / length).astype(np.float32)
    return True


def rescore(table: Table, policy: Numbers, rows: Keys, t: int, c: int) -> None:
    """Score the tokens still to come against a key that has moved."""
    key = table.keys[c].astype(table.scores.dtype)
    half = (key * key).sum() / 2 if policy.halved else 0.0
    table.scores[t + 1 :, c] = (rows[t + 1 :] * key).sum(axis=1) - half
