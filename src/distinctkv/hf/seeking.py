"""The nearest slot of many tokens at once, in Triton: a part of `routing`."""

# N heads of all layers and streams, L tokens, M rows of slots and tokens, W feature size
# R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from ..nn.kernels.halves import product

SCAN = tl.constexpr(1024)  # places at a time


@triton.jit
def apart(far, here, there, BESIDE: tl.constexpr):
    """Distances (R, T) with that of the numbers beside, (R,) and (T,)."""
    if BESIDE:
        gap = here[:, None] - there[None, :]
        far += gap * gap
    return far


@triton.jit
def seek(
    high,
    low,
    here,
    highs,
    lows,
    sizes,
    places,
    base,
    first,
    last,
    best,
    slot,
    W: tl.constexpr,
    T: tl.constexpr,
    BESIDE: tl.constexpr,
):
    """The nearest of the slots ``first`` to ``last``, where it is nearer than ``best``."""
    d = tl.arange(0, W)
    for start in range(first, last, T):
        at = start + tl.arange(0, T)
        inside = at < last
        rows = (base + at)[:, None] * W + d[None, :]
        theirs = tl.load(highs + rows, mask=inside[:, None], other=0.0)
        rest = tl.load(lows + rows, mask=inside[:, None], other=0.0)
        size = tl.load(sizes + base + at, mask=inside, other=float("inf"))
        there = tl.load(places + base + at, mask=inside & BESIDE, other=0.0)
        far = size[None, :] - 2 * product(high, low, theirs, rest)
        far = apart(far, here, there, BESIDE)
        least = tl.min(far, 1)
        who = tl.min(tl.where(far == least[:, None], at[None, :], last), 1)
        slot = tl.where(least < best, who, slot)
        best = tl.minimum(least, best)
    return best, slot


@triton.jit
def nearby(here, own, bar, real, places, base, last, T: tl.constexpr):
    """The first slot that some of the tokens can join, by where it stands; all before it are far.

    A gap of places alone is more than the reach, and more than rounding takes from a distance.
    """
    some = real & (bar > float("-inf")) & (bar < float("inf"))
    reach = tl.max(tl.where(some, 1.01 * (bar + own) + 1e-5 * own, 0.0), 0)
    low = tl.min(tl.where(some, here - 1e-6 * tl.abs(here), float("inf")), 0)
    low -= 1.001 * tl.sqrt(reach)
    first = last
    for start in range(0, last, T):
        at = start + tl.arange(0, T)
        there = tl.load(places + base + at, mask=at < last, other=float("-inf"))
        first = tl.minimum(first, tl.min(tl.where(there >= low, at, last), 0))
    return first


# What changes from pass to pass must not make a kernel of its own.
@triton.jit(do_not_specialize=["begin", "L"])
def search(
    highs,  # (M, W) float16, with the next; of a head first slots, then tokens
    lows,
    sizes,  # (M,)
    places,  # (M,)
    starts,  # (N,): the row of the first slot of a head,
    begins,  # (N,): and of its first token
    ends,  # (N,): where the tokens of a head end
    counts,  # (N,): slots that are open
    bars,  # (N, L): see `settling.raise_bars`
    best,  # (N, L): squared distance less the token's own size
    owner,  # (N, L)
    begin,
    L,
    W: tl.constexpr,
    BESIDE: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """The nearest open slot of the tokens from ``begin`` on; grid (tokens / R, N)."""
    head = tl.program_id(1).to(tl.int64)
    token = begin + tl.program_id(0) * R + tl.arange(0, R)
    end = tl.load(ends + head)
    if begin + tl.program_id(0) * R < end:
        at = tl.load(begins + head) + token
        rows = at[:, None] * W + tl.arange(0, W)[None, :]
        high = tl.load(highs + rows, mask=(token < end)[:, None], other=0.0)
        low = tl.load(lows + rows, mask=(token < end)[:, None], other=0.0)
        here = tl.load(places + at, mask=(token < end) & BESIDE, other=0.0)
        far = tl.full((R,), float("inf"), tl.float32)
        slot = tl.full((R,), -1, tl.int32)
        base, last = tl.load(starts + head), tl.load(counts + head)
        first = 0
        if BESIDE:
            own = tl.load(sizes + at, mask=token < end, other=0.0)
            bar = tl.load(bars + head * L + token, mask=token < end, other=float("inf"))
            first = nearby(here, own, bar, token < end, places, base, last, SCAN)
        far, slot = seek(
            high, low, here, highs, lows, sizes, places, base, first, last, far, slot, W, T, BESIDE
        )  # fmt: skip
        tl.store(best + head * L + token, far, mask=token < end)
        tl.store(owner + head * L + token, slot, mask=token < end)
