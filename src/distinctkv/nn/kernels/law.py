"""The law's arithmetic inside a kernel, for the few tokens that products cannot decide.

Squared distances are summed from left to right in float64 and products are rounded before they
are added, as in `distinctkv.rule`: these functions give its bits, so a tie falls as it does there.
Kernels that use them are launched with ``enable_fp_fusion=False``.
"""

# N streams, L tokens, S room for slots, D key size, R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def squares(key, slots, places, D: tl.constexpr):
    """Squared distances of the row at ``key`` from the rows at ``slots + places``."""
    total = tl.zeros_like(places).to(tl.float64)
    for d in range(D):
        gap = tl.load(slots + places + d).to(tl.float64) - tl.load(key + d).to(tl.float64)
        total += gap * gap
    return total


@triton.jit
def closest(key, slots, first, last, D: tl.constexpr, T: tl.constexpr):
    """Least squared distance from slots ``first`` to ``last``, and the oldest that far.

    Only tiles in which float32 finds a slot as near as any before are looked at by the law.
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
            far = tl.where(inside, squares(key, slots, at, D), float("inf"))
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
def recheck(
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
    """The nearest slot by the law, for tokens that float32 cannot tell; grid (any, N)."""
    stream = tl.program_id(1)
    base = stream.to(tl.int64) * L
    table = slots + stream.to(tl.int64) * S * D
    for index in range(tl.program_id(0), tl.load(asked + stream), tl.num_programs(0)):
        token = tl.load(tokens + base + index)
        seen = tl.load(visible + base + token)
        _, where = closest(keys + (base + token) * D, table, 0, seen, D, T)
        tl.store(found + base + token, where)


@triton.jit
def measure(keys, slots, found, valid, novelty, L, S, D: tl.constexpr, R: tl.constexpr):
    """Half the squared distance to the slot found, 2 if none, 0 for padding; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = block * R + tl.arange(0, R)
    place = stream.to(tl.int64) * L + token
    inside = token < L
    real = tl.load(valid + place, mask=inside, other=0) > 0
    slot = tl.load(found + place, mask=inside, other=-1)
    d = tl.arange(0, D)[None, :]
    there = (slot >= 0) & inside
    mine = tl.load(keys + place[:, None] * D + d, mask=there[:, None], other=0.0)
    at = stream.to(tl.int64) * S + slot
    theirs = tl.load(slots + at[:, None] * D + d, mask=there[:, None], other=0.0)
    gap = mine.to(tl.float64) - theirs.to(tl.float64)
    half = tl.minimum(tl.sum(gap * gap, 1) / 2, 2.0)
    half = tl.where(real, tl.where(there, half, 2.0), 0.0)
    tl.store(novelty + place, half.to(tl.float32), mask=inside)
