"""Open or merge one token of each stream, and set right the reads by the one slot that changed."""

# N streams, G queries for each key, S room for slots, D key size, E value size
# P parts that the slots were dealt to, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .law import closest
from .probe import loudness

SHORT = tl.constexpr(0.81)  # squared lengths of the keys that are taken
LONG = tl.constexpr(1.21)


@triton.jit
def choose(nearest, step, n_slots, tau, slack, P: tl.constexpr):
    """Novelty and nearest slot over all parts, and whether float32 leaves a doubt."""
    part = tl.arange(0, P)
    halves = tl.load(nearest + part)
    slots = tl.load(nearest + step + part)
    half = tl.min(halves, 0)
    slot = tl.min(tl.where(halves == half, slots, float("inf")), 0)
    second = tl.min(tl.load(nearest + 2 * step + part), 0)
    others = tl.min(tl.where((halves == half) & (slots == slot), float("inf"), halves), 0)
    tie = tl.where(tl.minimum(second, others) - half <= 2 * slack, n_slots, 0)
    edge = tl.where(tl.abs(half - tau.to(tl.float32)) <= slack, n_slots, 0)
    return half.to(tl.float64), tl.where(n_slots > 0, slot, 0.0).to(tl.int32), tie + edge


@triton.jit
def taken(mine, new, gate, alive):
    """1 if the token is real, its key a row of length one, its value and gate finite, else 0."""
    wide = mine.to(tl.float32)
    length = tl.sum(wide * wide, 0)
    live = tl.where(length > SHORT, alive.to(tl.int32), 0)
    live = tl.where(length < LONG, live, 0)
    live = tl.where(gate < float("inf"), live, 0)
    odd = tl.where(tl.abs(new) < float("inf"), 0, 1)
    return tl.where(tl.sum(odd, 0) == 0, live, 0)


@triton.jit
def written(old, new, gate, opens, MASS: tl.constexpr, MEAN: tl.constexpr, LAST: tl.constexpr):
    """A slot's value once a token's value is in it."""
    if MEAN:
        value = old + (new * gate if MASS else new)
    else:
        value = new if LAST else tl.where(opens > 0, new, old)
    return value


@triton.jit
def joined(query, key, scale, tops, totals, means, weight, more, change, P: tl.constexpr):
    """A read over all parts (E,), where one slot of ``weight`` has ``more`` of it and of value.

    A slot of no weight must not set the scale; if no slot has any, the read is 0.
    """
    E: tl.constexpr = change.shape[0]
    part = tl.arange(0, P)
    logit = tl.where(weight > 0, tl.sum(key * query, 0) * scale, float("-inf"))
    top = tl.load(tops + part)
    highest = tl.maximum(tl.max(top, 0), logit)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    fade = tl.where(top == float("-inf"), 0.0, tl.exp2(top - highest))
    power = tl.exp2(logit - highest)
    total = tl.sum(tl.load(totals + part) * fade, 0) + more * power
    table = tl.load(means + part[:, None] * E + tl.arange(0, E)[None, :])
    mean = tl.sum(table * fade[:, None], 0) + change * power
    return tl.where(total > 0, mean / tl.where(total > 0, total, 1.0), 0.0)


@triton.jit
def commit(
    queries,  # (N, G, D)
    keys,  # (N, D): the token's
    fresh,  # (N, E): the token's value
    gates,  # (N,): the token's weight
    alive,  # (N,): 0 for padding
    slots,  # (N, S, D)
    values,  # (N, S, E) float32
    weights,  # (N, S) float32
    sizes,  # (N, S) int32: tokens in each slot
    counts,  # (N,) int64: slots in use
    lost,  # (N,) int64: tokens that found no room
    seen,  # (N,) int64: tokens written
    refused,  # (N,) int64: tokens whose keys were no rows of length one, or values not finite
    taus,  # (N,) float64
    nearest,  # from `probe`, with the next three
    tops,
    totals,
    means,
    scales,  # (N, G): of logits, in base two
    out,  # (N, G, E)
    slack,
    S,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    T: tl.constexpr,
    P: tl.constexpr,
    MASS: tl.constexpr,
    MEAN: tl.constexpr,
    LAST: tl.constexpr,
):
    """Open or merge, and finish the reads; grid (N,)."""
    stream = tl.program_id(0)
    d, e = tl.arange(0, D), tl.arange(0, E)
    base = stream.to(tl.int64) * S
    n_slots = tl.load(counts + stream).to(tl.int32)
    tau = tl.load(taus + stream)
    key = keys + stream.to(tl.int64) * D
    mine = tl.load(key + d)
    real = tl.load(alive + stream).to(tl.int32)
    gate = tl.load(gates + stream)
    new = tl.load(fresh + stream.to(tl.int64) * E + e).to(tl.float32)
    live = tl.where(tau == tau, taken(mine, new, gate, real), 0)
    half, where, doubt = choose(
        nearest + stream * P, tl.num_programs(0) * P, n_slots, tau, slack, P
    )
    if doubt > 0:
        far, where = closest(key, slots + base * D, 0, n_slots, D, T)
        half = far / 2
    novel = tl.where(tl.minimum(half, 2.0) > tau, 1, 0)
    novel = tl.where(n_slots == 0, 1, novel) * live
    opens = tl.where(n_slots < S, novel, 0)
    at = base + tl.where(opens > 0, n_slots, where)

    # The slot as it was, 0 if it is only now opened, and as it is.
    old = (opens == 0) & (n_slots > 0)
    weight = tl.load(weights + at, mask=old, other=0.0)
    count = tl.load(sizes + at, mask=old, other=0)
    value = tl.load(values + at * E + e, mask=old & (e >= 0), other=0.0)
    theirs = tl.load(slots + at * D + d, mask=old & (d >= 0), other=0.0)
    theirs = tl.where(opens > 0, mine, theirs).to(tl.float32)
    value_now = written(value, new, gate, opens, MASS, MEAN, LAST)
    weight_now = weight + (gate if MASS else tl.where(opens > 0, gate, 0.0))
    was = loudness(weight, tl.maximum(count, 1).to(tl.float32), MASS, MEAN)
    change = value_now * loudness(weight_now, (count + 1).to(tl.float32), MASS, MEAN) - value * was

    for group in tl.static_range(G):
        head = stream * G + group
        query = tl.load(queries + head.to(tl.int64) * D + d).to(tl.float32)
        scale = tl.load(scales + head)
        parts = head * P
        here = (tops + parts, totals + parts, means + parts * E)
        read = joined(query, theirs, scale, *here, weight_now, weight_now - weight, change, P)
        read = tl.where(live > 0, read, 0.0).to(out.dtype.element_ty)
        tl.store(out + head.to(tl.int64) * E + e, read)

    tl.store(slots + at * D + d, mine, mask=(opens > 0) & (d >= 0))
    tl.store(values + at * E + e, value_now, mask=(live > 0) & (e >= 0))
    tl.store(weights + at, weight_now, mask=live > 0)
    tl.store(sizes + at, count + 1, mask=live > 0)
    tl.store(counts + stream, (n_slots + opens).to(tl.int64))
    tl.store(lost + stream, tl.load(lost + stream) + novel - opens)
    tl.store(seen + stream, tl.load(seen + stream) + live)
    tl.store(refused + stream, tl.load(refused + stream) + real - live)
