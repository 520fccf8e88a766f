"""The search for the nearest slot, on the matrix units, with no table of tokens by slots.

Keys are read in float16. For rows of length one that is eight times finer than bfloat16 and as
fast: a similarity is wrong by less than 2**-10, and a little for the sum. Similarity and slot are
found by one maximum, of whole numbers called marks: T times the similarity in steps of 2**-15,
plus the rank of the slot within its tile of T.
"""

# N streams, L tokens, S room for slots, D key size, C tokens of a chunk
# R tokens of a block, T slots of a tile, P parts that the slots are dealt to

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

NOTHING = tl.constexpr(-4.0)  # less than any similarity
LEAST = tl.constexpr(-(2**31))  # a mark below all marks
# Added to a similarity it leaves steps of 2**-15, which are then the steps of its bits.
ROUND = tl.constexpr(384.0)
ROUND_BITS = 0x43C00000
STEPS = tl.constexpr(32768)


@cache
def ranks(tile: int, device: torch.device) -> Tensor:
    """What makes a mark of T times the bits of ``ROUND`` + similarity; the older ranks higher."""
    wide = torch.arange(tile - 1, -1, -1, device=device) - ROUND_BITS * tile
    return ((wide + 2**31) % 2**32 - 2**31).to(torch.int32)  # as int32 holds it


@triton.jit
def mark(sims, ranks, T: tl.constexpr):
    """Marks of similarities (R, T)."""
    return (sims + ROUND).to(tl.int32, bitcast=True) * T + ranks[None, :]


@triton.jit
def similarity(mark, T: tl.constexpr):
    """The similarity in a mark."""
    return (mark - (mark & (T - 1))).to(tl.float32) / (T * STEPS)


@triton.jit
def keep(best, start, top, tile, second):
    """The best mark of a tile joins the best so far; ``second`` is the best of any other tile."""
    second = tl.maximum(second, tl.minimum(best, top))
    tile = tl.where(best > top, start, tile)
    return tl.maximum(best, top), tile, second


@triton.jit
def nearest(
    keys,  # (N L, D) float16, a descriptor of blocks (R, D)
    slots,  # (N S, D) float16, a descriptor of blocks (T, D)
    ranks,  # (T,)
    counts,  # (N,): slots in use
    tops,  # (P, N, C): mark of the nearest slot
    tiles,  # (P, N, C): where its tile starts
    seconds,  # (P, N, C): mark of the best slot of any other tile
    begin,
    L,
    S,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest slot of each token of a chunk; grid (C / R, P, N)."""
    block, part, stream = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n_slots = tl.load(counts + stream)
    share = tl.cdiv(tl.cdiv(n_slots, T), tl.num_programs(1)) * T
    first = part * share
    last = tl.minimum(first + share, n_slots)
    rank = tl.load(ranks + tl.arange(0, T))
    rows = keys.load([stream * L + begin + block * R, 0])
    top = tl.full((R,), LEAST, tl.int32)
    second = top
    tile = tl.zeros((R,), tl.int32)
    whole = first + tl.maximum(last - first, 0) // T * T
    for start in range(first, whole, T):
        sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
        top, tile, second = keep(tl.max(mark(sims, rank, T), 1), start, top, tile, second)
    if whole < last:
        sims = tl.dot(rows, slots.load([stream * S + whole, 0]).T)
        used = whole + tl.arange(0, T) < last
        marks = mark(tl.where(used[None, :], sims, NOTHING), rank, T)
        top, tile, second = keep(tl.max(marks, 1), whole, top, tile, second)
    C = tl.num_programs(0) * R
    place = (part * tl.num_programs(2) + stream).to(tl.int64) * C + block * R + tl.arange(0, R)
    tl.store(tops + place, top)
    tl.store(tiles + place, tile)
    tl.store(seconds + place, second)


@triton.jit
def keep_two(marks, start, top, tile, second):
    """The two best marks of a tile join the two best so far."""
    best = tl.max(marks, 1)
    other = tl.max(tl.where(marks == best[:, None], LEAST, marks), 1)
    return keep(best, start, top, tile, tl.maximum(second, other))


@triton.jit
def again(
    halved,  # (N, L, D) float16
    slots,  # (N S, D) float16, a descriptor of blocks (T, D)
    ranks,  # (T,)
    tokens,  # (N, L): the tokens to search for, in order
    asked,  # (N,): how many
    visible,  # (N, L): slots that were open when the token came
    strays,  # (N,): from `prepare`
    found,  # (N, L): the nearest slot goes here
    doubts,  # (N, L): 1 where another slot is as near as 16 bits can tell
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
        rank = tl.load(ranks + tl.arange(0, T))
        top = tl.full((R,), LEAST, tl.int32)
        second = top
        tile = tl.zeros((R,), tl.int32)
        whole = tl.min(tl.where(real, seen, S), 0) // T * T
        for start in range(0, whole, T):
            sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
            top, tile, second = keep_two(mark(sims, rank, T), start, top, tile, second)
        for start in range(whole, tl.max(seen, 0), T):
            sims = tl.dot(rows, slots.load([stream * S + start, 0]).T)
            used = start + tl.arange(0, T)[None, :] < seen[:, None]
            # Before it is marked: after it, ptxas of CUDA 12.8 drops the product altogether.
            marks = mark(tl.where(used, sims, NOTHING), rank, T)
            top, tile, second = keep_two(marks, start, top, tile, second)
        slot = tl.where(seen > 0, tile + T - 1 - (top & (T - 1)), -1)
        tl.store(found + place, slot, mask=real)
        stray = tl.load(strays + stream)
        off = slack * (1 + 4 * stray) + 2 * stray
        doubt = (seen > 1) & (similarity(top, T) - similarity(second, T) <= 2 * off)
        tl.store(doubts + place, doubt.to(tl.int8), mask=real)
