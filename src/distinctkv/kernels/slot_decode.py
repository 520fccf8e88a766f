"""One token for each sequence: its slot and its read, in static buffers, fit for a CUDA graph."""

# B sequences, H heads, G queries for each key, N = B H, S room for slots, D key size, E value size,
# P parts that the slots are dealt to, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from math import e, log2
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from .limits import single
from .nearest import closest

if TYPE_CHECKING:
    from ..nn.slot_state import SlotState


@triton.jit
def slot_weight(count, MASS: tl.constexpr):
    """What a slot of so many tokens counts for in the softmax: 0 if it has none."""
    return count if MASS else tl.minimum(count, 1.0)


@triton.jit
def value_scale(count, MASS: tl.constexpr, MEAN: tl.constexpr):
    """What a slot's stored value is multiplied by: it is a sum if ``MEAN``."""
    one = tl.full(count.shape, 1.0, tl.float32)
    of_sum = one if MASS else one / tl.maximum(count, 1.0)
    of_one = count if MASS else one
    return of_sum if MEAN else of_one


@triton.jit
def search(
    queries,  # (N, G, D)
    keys,  # (N, D): the token's
    slots,  # (N, S, D)
    values,  # (N, S, E) float32
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

        count = tl.load(sizes + at, mask=used, other=0).to(tl.float32)
        weight = slot_weight(count, MASS)
        heard = used & (weight > 0)  # a slot without a token must not set the scale
        logits = tl.where(heard, tl.sum(key * query[None, :], 1), float("-inf"))
        higher = tl.maximum(top, tl.max(logits, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        power = tl.exp2(logits - base)
        rescale = tl.exp2(top - base)
        total = total * rescale + tl.sum(power * weight, 0)
        power = power * value_scale(count, MASS, MEAN)
        value = tl.load(values + at[:, None] * E + e[None, :], mask=used[:, None], other=0.0)
        mean = mean * rescale + tl.sum(value * power[:, None], 0)
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


SHORT = tl.constexpr(0.81)  # squared lengths of the keys that are taken
LONG = tl.constexpr(1.21)


@triton.jit
def decide(nearest, step, n_slots, tau, slack, P: tl.constexpr):
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
def is_taken(mine, new, alive):
    """1 if the token is real, its key a row of length one and its value finite, else 0."""
    wide = mine.to(tl.float32)
    length = tl.sum(wide * wide, 0)
    live = tl.where(length > SHORT, alive.to(tl.int32), 0)
    live = tl.where(length < LONG, live, 0)
    odd = tl.where(tl.abs(new) < float("inf"), 0, 1)
    return tl.where(tl.sum(odd, 0) == 0, live, 0)


@triton.jit
def updated(old, new, opens, MEAN: tl.constexpr, LAST: tl.constexpr):
    """A slot's value once a token's value is in it."""
    kept = new if LAST else tl.where(opens > 0, new, old)
    return old + new if MEAN else kept


@triton.jit
def combine(query, key, scale, tops, totals, means, weight, more, change, P: tl.constexpr):
    """A read over all parts (E,), where one slot of ``weight`` has ``more`` of it and of value.

    A slot without a token must not set the scale; if no slot has any, the read is 0.
    """
    E: tl.constexpr = change.shape[0]
    part = tl.arange(0, P)
    logit = tl.where(weight > 0, tl.sum(key * query, 0) * scale, float("-inf"))
    top = tl.load(tops + part)
    highest = tl.maximum(tl.max(top, 0), logit)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    rescale = tl.where(top == float("-inf"), 0.0, tl.exp2(top - highest))
    power = tl.exp2(logit - highest)
    total = tl.sum(tl.load(totals + part) * rescale, 0) + more * power
    table = tl.load(means + part[:, None] * E + tl.arange(0, E)[None, :])
    mean = tl.sum(table * rescale[:, None], 0) + change * power
    return tl.where(total > 0, mean / tl.where(total > 0, total, 1.0), 0.0)


@triton.jit
def write_and_combine(
    queries,  # (N, G, D)
    keys,  # (N, D): the token's
    fresh,  # (N, E): the token's value
    alive,  # (N,): 0 for padding
    slots,  # (N, S, D)
    values,  # (N, S, E) float32
    sizes,  # (N, S) int32: tokens in each slot
    counts,  # (N,) int64: slots in use
    lost,  # (N,) int64: tokens that found no room
    seen,  # (N,) int64: tokens written
    refused,  # (N,) int64: tokens whose keys were no rows of length one, or values not finite
    taus,  # (N,) float64
    nearest,  # from `search`, with the next three
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
    new = tl.load(fresh + stream.to(tl.int64) * E + e).to(tl.float32)
    live = tl.where(tau == tau, is_taken(mine, new, real), 0)
    half, where, doubt = decide(
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
    count = tl.load(sizes + at, mask=old, other=0)
    value = tl.load(values + at * E + e, mask=old & (e >= 0), other=0.0)
    theirs = tl.load(slots + at * D + d, mask=old & (d >= 0), other=0.0)
    theirs = tl.where(opens > 0, mine, theirs).to(tl.float32)
    value_now = updated(value, new, opens, MEAN, LAST)
    before, after = count.to(tl.float32), (count + 1).to(tl.float32)
    weight, weight_now = slot_weight(before, MASS), slot_weight(after, MASS)
    change = value_now * value_scale(after, MASS, MEAN) - value * value_scale(before, MASS, MEAN)

    for group in tl.static_range(G):
        head = stream * G + group
        query = tl.load(queries + head.to(tl.int64) * D + d).to(tl.float32)
        scale = tl.load(scales + head)
        parts = head * P
        here = (tops + parts, totals + parts, means + parts * E)
        read = combine(query, theirs, scale, *here, weight_now, weight_now - weight, change, P)
        read = tl.where(live > 0, read, 0.0).to(out.dtype.element_ty)
        tl.store(out + head.to(tl.int64) * E + e, read)

    tl.store(slots + at * D + d, mine, mask=(opens > 0) & (d >= 0))
    tl.store(values + at * E + e, value_now, mask=(live > 0) & (e >= 0))
    tl.store(sizes + at, count + 1, mask=live > 0)
    tl.store(counts + stream, (n_slots + opens).to(tl.int64))
    tl.store(lost + stream, tl.load(lost + stream) + novel - opens)
    tl.store(seen + stream, tl.load(seen + stream) + live)
    tl.store(refused + stream, tl.load(refused + stream) + real - live)


TILE, WARPS, STAGES = 32, 2, 3
WAVES = 8  # programs for each processor of the device


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState,
    tau: Tensor,
    *,
    mode: str = "mass",
    value: str = "mean",
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Write one token (B, 1, H, D) into ``state``, in place, and read it (B, 1, H G, E).

    ``tau`` (B, H) is float64. The rest, and what comes out, is as `distinctkv.nn.functional.step`
    has it. Nothing waits for the device, so the call can be captured in a CUDA graph.
    """
    B, H, S, D = state.keys.shape
    E, N = v.shape[3], B * H
    G = q.shape[2] // H
    P = parts(N * G, S, q.device)
    parted = (3 * N * P, N * G * P, N * G * P, N * G * P * E)  # nearest, tops, totals, means
    out = v.new_empty(B, 1, H * G, E)
    scales = torch.full((N, G), (D**-0.5 if scale is None else scale) * log2(e), device=q.device)
    queries, keys, fresh = q.contiguous(), k.to(state.keys.dtype).contiguous(), v.contiguous()
    slots = (state.keys, state.values, state.counts, state.n_slots)
    partials = (*(torch.empty(n, device=q.device) for n in parted), scales)
    sizes = {"G": G, "D": D, "E": E, "T": TILE, "MASS": mode == "mass", "MEAN": value == "mean"}
    search[(P, N * G)](
        queries, keys, *slots, *partials, S, P, **sizes, STAGES=STAGES, num_warps=WARPS
    )
    write_and_combine[(N,)](
        queries, keys, fresh, _alive(mask, B, H, q.device), *slots,
        state.overflow, state.seen, state.refused, tau.contiguous(), *partials, out, single(D), S,
        P=P, LAST=value == "last", **sizes, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def parts(n_reads: int, capacity: int, device: torch.device) -> int:
    """How many programs share the slots of one read: enough to fill the device, a power of two."""
    if device.type != "cuda":
        return 2
    n_processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = max(1, WAVES * n_processors // n_reads)
    return int(triton.next_power_of_2(min(64, wanted, triton.cdiv(capacity, TILE))))


def _alive(mask: Tensor | None, B: int, H: int, device: torch.device) -> Tensor:
    if mask is None:
        return torch.ones(B * H, dtype=torch.int8, device=device)
    return mask.reshape(B, 1).expand(B, H).to(torch.int8).contiguous()
