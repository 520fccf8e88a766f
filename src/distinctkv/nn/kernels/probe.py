"""One walk over the slots for one token of each stream: the nearest of them, and the softmax."""

# N streams, G queries for each key, S room for slots, D key size, E value size
# P parts that the slots are dealt to, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def loudness(weight, count, MASS: tl.constexpr, MEAN: tl.constexpr):
    """What a slot's stored value is multiplied by: it is a sum if ``MEAN``."""
    if MEAN:
        factor = tl.full(weight.shape, 1.0, tl.float32) if MASS else weight / count
    else:
        factor = weight
    return factor


@triton.jit
def probe(
    queries,  # (N, G, D)
    keys,  # (N, D): the token's
    slots,  # (N, S, D)
    values,  # (N, S, E) float32
    weights,  # (N, S) float32
    sizes,  # (N, S) int32: tokens in each slot
    counts,  # (N,) int64: slots in use
    nearest,  # (3, N, P): half squared distance, slot as a number, second best
    tops,  # (N, G, P)
    totals,  # (N, G, P)
    means,  # (N, G, P, E)
    scales,  # (N, G): of logits, in base two
    S,
    P,
    G: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    T: tl.constexpr,
    MASS: tl.constexpr,
    MEAN: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The nearest slot of a part, and its share of each read; grid (P, N G)."""
    part, head = tl.program_id(0), tl.program_id(1)
    stream = head // G
    n_slots = tl.load(counts + stream).to(tl.int32)
    share = tl.cdiv(tl.cdiv(n_slots, T), P) * T
    first = part * share
    last = tl.minimum(first + share, n_slots)
    d, e, column = tl.arange(0, D), tl.arange(0, E), tl.arange(0, T)
    query = tl.load(queries + head.to(tl.int64) * D + d).to(tl.float32)
    query = query * tl.load(scales + head)
    mine = tl.load(keys + stream.to(tl.int64) * D + d).to(tl.float32)
    best = tl.full((), float("inf"), tl.float32)
    second = tl.full((), float("inf"), tl.float32)
    where = tl.full((), -1, tl.int32)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    mean = tl.zeros((E,), tl.float32)
    # Asked for by name: the compiler reads ahead by itself only for matrix products.
    for start in tl.range(first, last, T, num_stages=STAGES):
        slot = start + column
        used = slot < last
        at = stream.to(tl.int64) * S + slot
        key = tl.load(slots + at[:, None] * D + d[None, :], mask=used[:, None], other=0.0)
        key = key.to(tl.float32)
        gap = key - mine[None, :]
        far = tl.where(used, tl.sum(gap * gap, 1) / 2, float("inf"))
        here = tl.min(far, 0)
        place = tl.min(tl.where(far == here, slot, S), 0)
        rest = tl.min(tl.where(slot == place, float("inf"), far), 0)
        second = tl.minimum(tl.minimum(second, rest), tl.maximum(here, best))
        where = tl.where(here < best, place, where)
        best = tl.minimum(here, best)

        weight = tl.load(weights + at, mask=used, other=1.0)
        heard = used & (weight > 0)  # a slot of no weight must not set the scale
        logits = tl.where(heard, tl.sum(key * query[None, :], 1), float("-inf"))
        higher = tl.maximum(top, tl.max(logits, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        power = tl.exp2(logits - base)
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(power * weight, 0)
        count = tl.load(sizes + at, mask=used, other=1).to(tl.float32)
        power = power * loudness(weight, count, MASS, MEAN)
        value = tl.load(values + at[:, None] * E + e[None, :], mask=used[:, None], other=0.0)
        mean = mean * fade + tl.sum(value * power[:, None], 0)
        top = higher
    if head % G == 0:
        at = stream * P + part
        step = tl.num_programs(1) // G * P
        tl.store(nearest + at, best)
        tl.store(nearest + step + at, where.to(tl.float32))
        tl.store(nearest + 2 * step + at, second)
    tl.store(tops + head * P + part, top)
    tl.store(totals + head * P + part, total)
    tl.store(means + (head * P + part) * E + e, mean)
