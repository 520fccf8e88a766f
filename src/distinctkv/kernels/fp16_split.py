"""Float32 rows as two float16 halves, and products of them that are true to 22 bits."""

# N sequences (batch and head), L tokens, S room for slots, D key size, R tokens of a block,
# T slots of a tile

from __future__ import annotations

import triton
import triton.language as tl

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors


NOTHING = tl.constexpr(-4.0)  # less than any similarity


@triton.jit
def halves(rows):
    """A float32 row as the sum of two float16 rows, to 22 bits."""
    high = rows.to(tl.float16)
    return high, (rows - high.to(tl.float32)).to(tl.float16)


@triton.jit
def product(a_high, a_low, b_high, b_low):
    """Products (R, T) of rows given as halves; low times low is below what float32 holds."""
    sims = tl.dot(a_low, b_high.T)
    sims = tl.dot(a_high, b_low.T, sims)
    return tl.dot(a_high, b_high.T, sims)


@triton.jit
def prepare(keys, valid, halved, deviations, L, D: tl.constexpr, R: tl.constexpr):
    """Keys in float16, and how far their lengths are from one; grid (L / R, N).

    ``deviations`` (N,) gets the most that half a squared length differs from a half.
    """
    block, stream = tl.program_id(0), tl.program_id(1)
    token = block * R + tl.arange(0, R)
    place = stream.to(tl.int64) * L + token
    inside = token < L
    rows = place[:, None] * D + tl.arange(0, D)[None, :]
    mine = tl.load(keys + rows, mask=inside[:, None], other=0.0)
    tl.store(halved + rows, mine.to(tl.float16), mask=inside[:, None])
    real = tl.load(valid + place, mask=inside, other=0) > 0
    deviation = tl.where(real, tl.abs(tl.sum(mine * mine, 1) - 1) / 2, 0.0)
    # Numbers that are not negative have the order of their bits.
    tl.atomic_max(deviations + stream, tl.max(deviation, 0).to(tl.int32, bitcast=True))


@triton.jit
def split_pass(
    keys,  # (N, L, D) float32
    highs,  # (N S, D) float16, descriptors of blocks (T, D): the slots' two halves
    lows,
    shifts,  # (N, S): a half less half a slot's squared length
    tokens,  # (N, L): the tokens to search for, in order
    asked,  # (N,): how many
    visible,  # (N, L): slots that were open when the token came
    found,  # (N, L): the nearest slot goes here
    ambiguous,  # (N, L): 1 where another slot is as near as float32 can tell
    slack,
    L,
    S,
    D: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest of the slots a token could see, to float32; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    n_asked = tl.load(asked + stream)
    if block * R < n_asked:
        base = stream.to(tl.int64) * L
        index = block * R + tl.arange(0, R)
        real = index < n_asked
        token = tl.load(tokens + base + index, mask=real, other=0)
        seen = tl.load(visible + base + token, mask=real, other=0)
        place = base + token
        high, low = halves(tl.load(keys + place[:, None] * D + tl.arange(0, D)[None, :]))
        top = tl.full((R,), NOTHING, tl.float32)
        second = top
        where = tl.full((R,), -1, tl.int32)
        for start in range(0, tl.max(seen, 0), T):
            at = stream * S + start
            slot = start + tl.arange(0, T)
            shift = tl.load(shifts + stream.to(tl.int64) * S + slot, mask=slot < S, other=0.0)
            sims = product(high, low, highs.load([at, 0]), lows.load([at, 0])) + shift[None, :]
            sims = tl.where(slot[None, :] < seen[:, None], sims, NOTHING)
            best = tl.max(sims, 1)
            here = tl.min(tl.where(sims == best[:, None], slot[None, :], S), 1)
            other = tl.max(tl.where(slot[None, :] == here[:, None], NOTHING, sims), 1)
            second = tl.maximum(tl.maximum(second, other), tl.minimum(best, top))
            where = tl.where(best > top, here, where)
            top = tl.maximum(best, top)
        tl.store(found + place, where, mask=real)
        doubt = (seen > 1) & (top - second <= 2 * slack)
        tl.store(ambiguous + place, doubt.to(tl.int8), mask=real)
