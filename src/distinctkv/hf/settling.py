"""Which tokens open a slot, and whose slot the rest join, in Triton: a part of `routing`."""

# N heads of all layers and streams, L tokens, M rows of slots and tokens, W feature size
# R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from ..nn.kernels.halves import product
from ..nn.kernels.settle import rounds
from .seeking import apart, seek


@triton.jit(do_not_specialize=["L", "step"], do_not_specialize_on_alignment=["there"])
def raise_bars(
    reach,  # (N, L), by its steps
    there,  # (N, L) int8
    powers,  # (N,)
    begins,  # (N,)
    lengths,  # (N,): slots before
    sizes,
    places,
    bars,  # (N, L): the reach less the token's own size; -inf opens, inf is not there
    owner,  # (N, L), with the next: nobody's,
    opened,  # and not opened,
    counts,  # (N,): and no slots but those before, so far
    head_step,
    step,
    L,
    TIE: tl.constexpr,
    OFF: tl.constexpr,
    T: tl.constexpr,
    BESIDE: tl.constexpr,
):
    """What distances are compared with, `allocation.band` above the reach; grid (L / T, N).

    What `settle` writes begins here.
    """
    head = tl.program_id(1).to(tl.int64)
    token = tl.program_id(0) * T + tl.arange(0, T)
    inside = token < L
    real = tl.load(there + head * L + token, mask=inside, other=0) > 0
    near = tl.load(reach + head * head_step + token.to(tl.int64) * step, mask=inside, other=0.0)
    alone = near < 0
    at = tl.load(begins + head) + token
    own = tl.load(sizes + at, mask=real, other=0.0)
    # Bits of a float32 that is a power of two.
    near *= ((2 * tl.load(powers + head) + 127) << 23).to(tl.float32, bitcast=True)
    bar = near + TIE * (near + own) - own
    if BESIDE:
        place = tl.abs(tl.load(places + at, mask=real, other=0.0))
        bar += OFF * place * tl.sqrt(tl.minimum(tl.maximum(near, 0.0), 3.4028234663852886e38))
    bar = tl.where(alone, float("-inf"), tl.minimum(bar, 3.4028234663852886e38))
    tl.store(bars + head * L + token, tl.where(real, bar, float("inf")), mask=inside)
    tl.store(sizes + at, float("inf"), mask=real & alone)
    tl.store(owner + head * L + token, -1, mask=inside)
    tl.store(opened + head * L + token, 0, mask=inside)
    if tl.program_id(0) == 0:
        tl.store(counts + head, tl.load(lengths + head))


@triton.jit(do_not_specialize=["begin", "part", "L"])
def settle(
    highs,
    lows,
    sizes,
    places,
    starts,
    begins,
    ends,
    counts,
    bars,
    best,
    owner,
    opened,  # (N, L)
    begin,
    part,
    L,
    W: tl.constexpr,
    BESIDE: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Who opens a slot of ``part`` tokens from ``begin`` on, and whose the rest join; grid (N,)."""
    head = tl.program_id(0).to(tl.int64)
    base, tokens = tl.load(starts + head), tl.load(begins + head)
    first = tl.load(counts + head)
    now = first
    end = tl.minimum(tl.load(ends + head), begin + part)
    row = tl.arange(0, R)
    d = tl.arange(0, W)
    earlier = row[None, :] < row[:, None]
    for start in range(begin, end, R):
        token = start + row
        real = token < end
        place = head * L + token
        at = tokens + token
        rows = at[:, None] * W + d[None, :]
        high = tl.load(highs + rows, mask=real[:, None], other=0.0)
        low = tl.load(lows + rows, mask=real[:, None], other=0.0)
        size = tl.load(sizes + at, mask=real, other=float("inf"))
        bar = tl.load(bars + place, mask=real, other=float("inf"))
        far = tl.load(best + place, mask=real, other=0.0)
        slot = tl.load(owner + place, mask=real, other=-1)
        here = tl.load(places + at, mask=real & BESIDE, other=0.0)
        far, slot = seek(
            high, low, here, highs, lows, sizes, places, base, first, now, far, slot, W, T, BESIDE
        )  # fmt: skip
        inside = size[None, :] - 2 * product(high, low, high, low)
        inside = apart(inside, here, here, BESIDE)
        waiting = real & (far > bar)
        near = earlier & (inside <= bar[:, None])
        lead = rounds(near & waiting[None, :] & waiting[:, None], waiting)
        new = now + tl.cumsum(lead.to(tl.int32), 0) - 1
        close = tl.where(earlier & lead[None, :], inside, float("inf"))
        least = tl.min(close, 1)
        who = tl.min(tl.where(close == least[:, None], new[None, :], 2**30), 1)
        slot = tl.where(lead, new, tl.where(least < far, who, slot))
        slot = tl.where(bar < float("inf"), slot, -1)
        tl.store(owner + place, slot, mask=real)
        tl.store(opened + place, lead.to(tl.int8), mask=real)
        # All have read the block before its rows move, and they have moved before the next.
        tl.debug_barrier()
        to = base + new
        tl.store(highs + to[:, None] * W + d[None, :], high, mask=lead[:, None])
        tl.store(lows + to[:, None] * W + d[None, :], low, mask=lead[:, None])
        tl.store(sizes + to, size, mask=lead)
        if BESIDE:
            tl.store(places + to, here, mask=lead)
        tl.debug_barrier()
        now += tl.sum(lead.to(tl.int32), 0)
    tl.store(counts + head, now)
