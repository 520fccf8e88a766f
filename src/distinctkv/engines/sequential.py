"""Token by token over a matrix of scores: exact for budgets and for keys that move.

Evicting a slot sets a column of the scores to -inf, and opening one fills a column, so one product
serves a whole chunk.

numba can compile `scan` unchanged; compiled or not, the decisions are equal.
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
from .bounds import ScoreBounds

# L tokens, S slots before the chunk, N = S + L columns, D key size
CHUNK = 256
CELLS = 1 << 22  # elements of the score matrix at most


class Table(NamedTuple):
    """The columns of a scan: the slots, then one column for each token that may open a slot."""

    scores: NDArray[Any]  # (L, N), -inf without a slot
    tokens: NDArray[Any]  # (L, L) score of each token against each token
    keys: Keys  # (S, D) of the slots; (N, D), to be changed, if keys move
    ids: Ints
    usage: Floats
    hits: Ints
    last: Ints
    means: Floats  # (N, D) behind keys that move
    alive: Bools


class Policy(NamedTuple):
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
    """Tokens per chunk, so that the scores stay in the L2 cache."""
    most = CHUNK if slots.merge.key == "first" else CHUNK // 4  # a key that moves is scored again
    return max(16, min(most, CELLS // (slots.n + 1)))


def decide(slots: Slots, concentration: Concentration, keys: Keys, use_weights: Floats) -> Decision:
    """Decide a chunk in NumPy."""
    return _decide(slots, concentration, keys, use_weights, lambda _: scan)


def decide_compiled(
    slots: Slots, concentration: Concentration, keys: Keys, use_weights: Floats
) -> Decision:
    """Decide a chunk with the scan compiled by numba, or in NumPy if that fails."""
    return _decide(slots, concentration, keys, use_weights, _scan_for)


def _scan_for(kind: np.dtype[Any]) -> Any:  # noqa: ANN401
    try:
        return compiled_for(kind)
    except Exception as error:  # numba fails in many ways; a write must not fail for it
        warnings.warn(
            f"numba failed ({error}); the sequential engine takes over for a chunk", stacklevel=4
        )
        return scan


@cache
def compiled_for(kind: np.dtype[Any]) -> Any:  # noqa: ANN401
    """The compiled scan after a test run on scores of this type, which makes numba compile it.

    An exception in a later run does not come from numba but, say, from a signal handler.
    """
    run, cell, key = compiled(), np.zeros((1, 1), kind), np.zeros((1, 1), np.float32)
    integer, real, flag = np.zeros(1, np.int64), np.ones(1), np.zeros(1, bool)
    table = Table(cell, cell, key, integer, real, integer, integer, np.empty((0, 0)), flag)
    policy = Policy(0.0, 1.0, 0.0, 1.0, 1.0, mean=False, moving=False, cosine=False, halved=False)
    run(table, policy, key, real, real, real, real, 0.0, 0, integer, flag)
    return run


@cache
def compiled() -> Any:  # noqa: ANN401
    """The scan and what it calls, compiled."""
    try:
        import numba
    except ImportError as error:
        raise ImportError(f"the compiled engine needs numba: {install('fast')}") from error
    space = dict(globals())
    for function in (key_of, nearest, least_used, move, rescore, scan):
        plain = FunctionType(function.__code__, space, function.__name__)
        try:
            space[function.__name__] = numba.njit(plain, cache=True)
        except RuntimeError:  # no folder is writable for its cache
            space[function.__name__] = numba.njit(plain)
    return space["scan"]


def _decide(
    slots: Slots,
    concentration: Concentration,
    keys: Keys,
    use_weights: Floats,
    scan_of: Callable[[np.dtype[Any]], Any],
) -> Decision:
    bounds = ScoreBounds.of_chunk(keys, concentration.tau, slots.metric, slots.max_norm)
    run = scan_of(bounds.rows.dtype)
    moving = slots.merge.key != "first"
    table = _table(slots, bounds)
    policy = Policy(
        *(concentration.tau, concentration.base, concentration.gain, concentration.rate),
        *(slots.merge.pace, slots.merge.key == "mean", moving),
        *(slots.metric == "cosine", bounds.halved),
    )
    # Keys that move may come within tau of each other, and then certify nothing.
    certain = np.full(len(keys), inf) if moving else bounds.certain_above
    columns, opened = np.empty(len(keys), np.int64), np.zeros(len(keys), bool)
    temperature = run(
        *(table, policy, keys, bounds.novel_below, certain, bounds.error),
        *(use_weights, slots.temperature, slots.n_opened, columns, opened),
    )
    evicted = slots.n + opened.sum() - table.alive.sum()
    moved = (table.keys, table.means) if moving else None
    return Decision(columns, opened, temperature, table.alive if evicted else None, moved)


def _table(slots: Slots, bounds: ScoreBounds) -> Table:
    n_tokens, n_slots = len(bounds.keys), slots.n
    scores = np.full((n_tokens, n_slots + n_tokens), -inf, bounds.rows.dtype)
    scores[:, :n_slots] = bounds.scores(slice(None), slots["keys"])
    tokens = bounds.scores(slice(None), bounds.keys)

    def column(name: str, fill: float) -> NDArray[Any]:
        dtype = slots[name].dtype
        return np.concatenate([slots[name], np.full(n_tokens, fill, dtype)])

    keys, means = slots["keys"], np.empty((0, 0))
    if "mean" in slots:
        keys, means = (np.concatenate([slots[name], bounds.keys]) for name in ("keys", "mean"))
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
    policy: Policy,
    rows: Keys,
    novel_below: Floats,
    certain_above: Floats,
    error: Floats,
    use_weights: Floats,
    temperature: float,
    n_opened: int,
    columns: Ints,
    opened: Bools,
) -> float:
    """Fill ``columns`` and ``opened``, update the table; return the temperature."""
    n_tokens = len(rows)
    n_before = len(table.ids) - n_tokens
    n_slots, base = n_before, table.last[-1]
    for t in range(n_tokens):
        c, new = nearest(table, policy, rows, t, novel_below[t], certain_above[t], error[t])
        if new:
            c = n_before + t
            table.ids[c], table.alive[c] = n_opened, True
            table.scores[t + 1 :, c] = table.tokens[t + 1 :, t]
            n_opened, n_slots = n_opened + 1, n_slots + 1
        table.usage[c] += use_weights[t]
        table.hits[c] += 1
        table.last[c] = base + t
        if policy.moving and not new and move(table, policy, rows[t], c):
            rescore(table, policy, rows, t, c)
        columns[t], opened[t] = c, new
        temperature = (1 - policy.rate) * temperature + policy.rate * new
        while n_slots > policy.base + policy.gain * temperature:
            evicted = least_used(table, c if new else -1)
            table.alive[evicted] = False
            table.scores[t + 1 :, evicted] = -np.inf
            n_slots -= 1
    return temperature


def nearest(
    table: Table,
    policy: Policy,
    rows: Keys,
    t: int,
    novel_below: float,
    certain_above: float,
    error: float,
) -> tuple[int, bool]:
    """Column of the nearest slot, and whether the token is novel; near-ties by exact distances."""
    scores = table.scores[t]
    c = int(scores.argmax())
    best = scores[c]
    if best > certain_above:
        return c, False
    if best == -np.inf:
        return c, True
    near = np.nonzero(scores >= best - 2 * error)[0]
    if len(near) == 1 and abs(best - novel_below) > error:
        return c, bool(best < novel_below)
    least = np.inf
    for r in near:
        gaps = key_of(table, policy, rows, r).astype(np.float64) - rows[t].astype(np.float64)
        squared = np.cumsum(gaps * gaps)[-1]
        if squared < least or (squared == least and table.ids[r] < table.ids[c]):
            least, c = squared, int(r)
    distance = min(least / 2, 2.0) if policy.cosine else least
    return c, bool(distance > policy.tau)


def key_of(table: Table, policy: Policy, rows: Keys, c: Any) -> Any:  # noqa: ANN401
    """Key of the slot in a column."""
    n_before = len(table.ids) - len(rows)
    if c < n_before or policy.moving:
        return table.keys[c]
    return rows[c - n_before]


def least_used(table: Table, keep: int) -> int:
    """Column of the least used slot: of equals the longest idle, then the oldest."""
    usage = np.where(table.alive, table.usage, np.inf)
    if keep >= 0:
        usage[keep] = np.inf
    candidates = np.nonzero(usage == usage.min())[0]
    found = candidates[0]
    for c in candidates:
        idle = table.last[c] < table.last[found]
        if idle or (table.last[c] == table.last[found] and table.ids[c] < table.ids[found]):
            found = c
    return int(found)


def move(table: Table, policy: Policy, row: Keys, c: int) -> bool:
    """Move a slot's key towards a repeat, as `rule.move` does; False if it stays."""
    step = 1 / table.hits[c] if policy.mean else policy.pace
    mean = table.means[c] + (row.astype(np.float64) - table.means[c]) * step
    table.means[c] = mean
    length = np.sqrt(np.cumsum(mean * mean)[-1]) if policy.cosine else 1.0
    if length < 1e-6:
        return False
    table.keys[c] = (mean / length).astype(np.float32)
    return True


def rescore(table: Table, policy: Policy, rows: Keys, t: int, c: int) -> None:
    """Score the later tokens against a key that has moved."""
    key = table.keys[c].astype(table.scores.dtype)
    half = (key * key).sum() / 2 if policy.halved else 0.0
    table.scores[t + 1 :, c] = (rows[t + 1 :] * key).sum(axis=1) - half
