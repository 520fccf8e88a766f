"""The nearest slot of each token: a float16 pass, and exact distances where it cannot decide."""

# N sequences (batch and head), L tokens, S room for slots, D key size, C tokens of a chunk,
# R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


def tiles(table: Tensor, height: int) -> TensorDescriptor:
    """A table (N, L, D) as rows, to be taken ``height`` at a time."""
    width = table.shape[2]
    return TensorDescriptor.from_tensor(table.view(-1, width), [height, width])


@triton.jit
def squared_distances(key, slots, places, D: tl.constexpr):
    """Squared distances of the row at ``key`` from the rows at ``slots + places``."""
    total = tl.zeros_like(places).to(tl.float64)
    for d in range(D):
        gap = tl.load(slots + places + d).to(tl.float64) - tl.load(key + d).to(tl.float64)
        total += gap * gap
    return total


@triton.jit
def closest(key, slots, first, last, D: tl.constexpr, T: tl.constexpr):
    """Least squared distance from slots ``first`` to ``last``, and the oldest that far.

    Only tiles in which float32 finds a slot as near as any before are computed by the reference.
    """
    d = tl.arange(0, D)
    mine = tl.load(key + d).to(tl.float32)
    bar = tl.full((), float("inf"), tl.float32)
    least = tl.full((), float("inf"), tl.float64)
    where = tl.full((), -1, tl.int32)
    for start in range(first, last, T):
        slot = start + tl.arange(0, T)
        inside = slot < last
        at = tl.where(inside, slot, first).to(tl.int64) * D
        gap = tl.load(slots + at[:, None] + d[None, :]).to(tl.float32) - mine[None, :]
        rough = tl.min(tl.where(inside, tl.sum(gap * gap, 1), float("inf")), 0)
        # A sum of D squares in float32 is wrong by less than D 2**-23 of itself, on both sides.
        if rough * (1 - D * 2.0**-22) <= bar:
            far = tl.where(inside, squared_distances(key, slots, at, D), float("inf"))
            here = tl.min(far, 0)
            place = tl.min(tl.where(far == here, slot, last), 0)
            where = tl.where(here < least, place, where)
            least = tl.minimum(here, least)
            bar = tl.minimum(rough * (1 + D * 2.0**-22), bar)
    return least, where


@triton.jit
def pick(row, chosen, values):
    """The element of ``values`` in row ``chosen``, as a scalar."""
    return tl.sum(tl.where(row == chosen, values, 0), 0)


@triton.jit
def exact_pass(
    keys,  # (N, L, D) float32
    slots,  # (N, S, D) float32
    tokens,  # (N, L): the tokens to decide, in order
    asked,  # (N,): how many
    visible,  # (N, L): slots that were open when the token came
    found,  # (N, L): the nearest slot goes here
    L,
    S,
    D: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest slot by the reference, for tokens that float32 cannot tell; grid (any, N)."""
    stream = tl.program_id(1)
    base = stream.to(tl.int64) * L
    table = slots + stream.to(tl.int64) * S * D
    for index in range(tl.program_id(0), tl.load(asked + stream), tl.num_programs(0)):
        token = tl.load(tokens + base + index)
        seen = tl.load(visible + base + token)
        _, where = closest(keys + (base + token) * D, table, 0, seen, D, T)
        tl.store(found + base + token, where)


NOTHING = tl.constexpr(-4.0)  # less than any similarity
LEAST = tl.constexpr(-(2**31))  # a mark below all marks
# Added to a similarity it leaves steps of 2**-15, which are then the steps of its bits.
ROUND = tl.constexpr(384.0)
ROUND_BITS = 0x43C00000
STEPS = tl.constexpr(32768)


@cache
def tie_breaks(tile: int, device: torch.device) -> Tensor:
    """What packs T times the bits of ``ROUND`` + similarity; the older slot ranks higher."""
    wide = torch.arange(tile - 1, -1, -1, device=device) - ROUND_BITS * tile
    return ((wide + 2**31) % 2**32 - 2**31).to(torch.int32)  # as int32 holds it


@triton.jit
def pack_similarity(sims, tie_breaks, T: tl.constexpr):
    """Marks of similarities (R, T)."""
    return (sims + ROUND).to(tl.int32, bitcast=True) * T + tie_breaks[None, :]


@triton.jit
def similarity_of(packed, T: tl.constexpr):
    """The similarity that is packed with a slot."""
    return (packed - (packed & (T - 1))).to(tl.float32) / (T * STEPS)


@triton.jit
def update_top(best, start, top, tile, second):
    """The best of a tile joins the best so far; ``second`` is the best of any other tile."""
    second = tl.maximum(second, tl.minimum(best, top))
    tile = tl.where(best > top, start, tile)
    return tl.maximum(best, top), tile, second


@triton.jit
def nearest(
    keys,  # (N L, D) float16, a descriptor of blocks (R, D)
    slots,  # (N S, D) float16, a descriptor of blocks (T, D)
    tie_breaks,  # (T,)
    counts,  # (N,): slots in use
    tops,  # (N, C): packed similarity of the nearest slot
    tiles,  # (N, C): where its tile starts
    seconds,  # (N, C): packed similarity of the best slot of any other tile
    begin,
    L,
    S,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest slot of each token of a chunk; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    n_slots = tl.load(counts + stream)
    rank = tl.load(tie_breaks + tl.arange(0, T))
    rows = keys.load([stream * L + begin + block * R, 0])
    top = tl.full((R,), LEAST, tl.int32)
    second = top
    tile = tl.zeros((R,), tl.int32)
    whole = n_slots // T * T
    for start in range(0, whole, T):
        sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
        top, tile, second = update_top(
            tl.max(pack_similarity(sims, rank, T), 1), start, top, tile, second
        )
    if whole < n_slots:
        sims = tl.dot(rows, slots.load([stream * S + whole, 0]).T)
        used = whole + tl.arange(0, T) < n_slots
        packed = pack_similarity(tl.where(used[None, :], sims, NOTHING), rank, T)
        top, tile, second = update_top(tl.max(packed, 1), whole, top, tile, second)
    C = tl.num_programs(0) * R
    place = stream.to(tl.int64) * C + block * R + tl.arange(0, R)
    tl.store(tops + place, top)
    tl.store(tiles + place, tile)
    tl.store(seconds + place, second)


@triton.jit
def update_top_two(packed, start, top, tile, second):
    """The two best of a tile join the two best so far."""
    best = tl.max(packed, 1)
    other = tl.max(tl.where(packed == best[:, None], LEAST, packed), 1)
    return update_top(best, start, top, tile, tl.maximum(second, other))


@triton.jit
def second_pass(
    halved,  # (N, L, D) float16
    slots,  # (N S, D) float16, a descriptor of blocks (T, D)
    tie_breaks,  # (T,)
    tokens,  # (N, L): the tokens to search for, in order
    asked,  # (N,): how many
    visible,  # (N, L): slots that were open when the token came
    deviations,  # (N,): from `prepare`
    found,  # (N, L): the nearest slot goes here
    ambiguous,  # (N, L): 1 where another slot is as near as 16 bits can tell
    slack,
    L,
    S,
    D: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest of the slots a token could see, and whether 16 bits tell; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    n_asked = tl.load(asked + stream)
    if block * R < n_asked:
        base = stream.to(tl.int64) * L
        index = block * R + tl.arange(0, R)
        real = index < n_asked
        token = tl.load(tokens + base + index, mask=real, other=0)
        seen = tl.load(visible + base + token, mask=real, other=0)
        place = base + token
        rows = tl.load(halved + place[:, None] * D + tl.arange(0, D)[None, :])
        rank = tl.load(tie_breaks + tl.arange(0, T))
        top = tl.full((R,), LEAST, tl.int32)
        second = top
        tile = tl.zeros((R,), tl.int32)
        whole = tl.min(tl.where(real, seen, S), 0) // T * T
        for start in range(0, whole, T):
            sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
            top, tile, second = update_top_two(
                pack_similarity(sims, rank, T), start, top, tile, second
            )
        for start in range(whole, tl.max(seen, 0), T):
            sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
            used = start + tl.arange(0, T)[None, :] < seen[:, None]
            # Before it is marked: after it, ptxas of CUDA 12.8 drops the product altogether.
            packed = pack_similarity(tl.where(used, sims, NOTHING), rank, T)
            top, tile, second = update_top_two(packed, start, top, tile, second)
        slot = tl.where(seen > 0, tile + T - 1 - (top & (T - 1)), -1)
        tl.store(found + place, slot, mask=real)
        deviation = tl.load(deviations + stream)
        off = slack * (1 + 4 * deviation) + 2 * deviation
        doubt = (seen > 1) & (similarity_of(top, T) - similarity_of(second, T) <= 2 * off)
        tl.store(ambiguous + place, doubt.to(tl.int8), mask=real)


# What is known of a token.
SETTLED = tl.constexpr(0)  # it merges, and its nearest slot is certain
COVERED = tl.constexpr(1)  # it merges; which slot is nearest must be looked at again
NOVEL = tl.constexpr(2)  # no slot open before its chunk covers it
LEADER = tl.constexpr(3)  # it opened a slot
PADDING = tl.constexpr(4)  # padding


@triton.jit
def classify(
    tops,  # (N, C), from `nearest`, with the next two
    tiles,
    seconds,
    keys,  # (N, L, D) float32
    slots,  # (N, S, D) float32
    counts,  # (N,): slots in use
    taus,  # (N,) float64
    certain,  # (N,): a token less novel than this is nearest to one slot alone
    deviations,  # (N,): from `prepare`
    valid,  # (N, L): 0 where padding
    states,  # (N, L)
    found,  # (N, L): the nearest slot
    slack,
    begin,
    C,
    L,
    S,
    D: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Sort a chunk's tokens into done, near and novel; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, R)
    token = begin + block * R + row
    place = stream.to(tl.int64) * L + token
    n_slots = tl.load(counts + stream)
    tau = tl.load(taus + stream)
    edge = (1 - tau).to(tl.float32)
    deviation = tl.load(deviations + stream)
    off = slack * (1 + 4 * deviation) + 2 * deviation
    here = stream.to(tl.int64) * C + block * R + row
    best, tile = tl.load(tops + here), tl.load(tiles + here)
    slot = tile + T - 1 - (best & (T - 1))
    top, second = similarity_of(best, T), similarity_of(tl.load(seconds + here), T)
    alive = tl.load(valid + place, mask=token < L, other=0) > 0
    sure = top - off > 1 - tl.load(certain + stream)
    state = tl.where((top >= edge) & (n_slots > 0), tl.where(sure, SETTLED, COVERED), NOVEL)

    todo = (alive & (n_slots > 0) & (top + off >= edge) & (top - off < edge)).to(tl.int32)
    # One tile holds all that could cover the token, or else every slot is asked.
    alone = (second + off < edge).to(tl.int32)
    table = slots + stream.to(tl.int64) * S * D
    left = tl.sum(todo, 0)
    while left > 0:
        chosen = tl.min(tl.where(todo > 0, row, R), 0)
        one = pick(row, chosen, alone)
        first = pick(row, chosen, tile) * one
        last = tl.where(one > 0, tl.minimum(first + T, n_slots), n_slots)
        far, _ = closest(keys + pick(row, chosen, place) * D, table, first, last, D, T)
        state = tl.where(row == chosen, tl.where(far / 2 > tau, NOVEL, COVERED), state)
        todo = tl.where(row == chosen, 0, todo)
        left -= 1

    state = tl.where(alive, state, PADDING)
    tl.store(states + place, state.to(tl.int8), mask=token < L)
    tl.store(found + place, tl.where(alive & (n_slots > 0), slot, -1), mask=token < L)


@triton.jit
def compact(states, indices, sizes, wanted, begin, C, L, R: tl.constexpr):
    """Line up the tokens of a chunk in these states, and count them; grid (N,).

    ``wanted`` has a bit for each state that is wanted.
    """
    stream = tl.program_id(0)
    total = tl.full((), 0, tl.int32)
    for start in range(0, C, R):
        token = begin + start + tl.arange(0, R)
        inside = (start + tl.arange(0, R) < C) & (token < L)
        state = tl.load(states + stream.to(tl.int64) * L + token, mask=inside, other=0).to(tl.int32)
        chosen = inside & (((wanted >> state) & 1) > 0)
        rank = total + tl.cumsum(chosen.to(tl.int32), 0) - 1
        tl.store(indices + stream.to(tl.int64) * C + rank, token, mask=chosen)
        total += tl.sum(chosen.to(tl.int32), 0)
    tl.store(sizes + stream, total)
