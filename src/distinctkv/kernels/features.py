"""Slots by features: the table of keys and values, its nearest-slot search, and who opens a slot.

The torch reference is `distinctkv.hf.merge`. `search` finds the nearest of the slots that were
open before a part of the text, for all its tokens at once. `settle` goes through the part block by
block: the nearest of the slots opened since, then which tokens of the block open one. A slot's row
is moved down within the table of tokens. Products are of float16 halves, so they are true to 22
bits, as float32 is after a sum; distances never lie in memory. Where features have a place
(`kernels.placed`), that one stays in float32 beside the halves.
"""

# N heads of all layers and sequences, L tokens, S slots before, M rows of all heads
# D key size, C value size, F = D + C feature size, W the same up to a power of two
# R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201, ANN202
# mypy: ignore-errors

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import placed
from .fp16_split import halves, product
from .independent_set import rounds
from .limits import OFF, TIE

if TYPE_CHECKING:
    from ..hf.metric import Rotary, Scale
    from ..hf.slots import Slots


# N heads of all layers and streams, M rows of all of them, L the most rows of a head
# D key size, H = D / 2, C value size, F = D + C, T rows at a time
# W is H up to a power of two, X is C, V is F


@triton.jit
def _turned(keys, positions, row, there, turns, stretch, H: tl.constexpr, W: tl.constexpr):
    """Keys without the turn of their positions, in two halves (T, W)."""
    d = tl.arange(0, W)
    inside = there[:, None] & (d < H)[None, :]
    at = tl.load(positions + row, mask=there, other=0).to(tl.float32)
    by = tl.load(turns + d, mask=d < H, other=0.0)
    # Rounded as the model rounds it; what is left of whole quarters is then exact.
    angle = (at[:, None] * by[None, :]).to(tl.float64)
    quarters = tl.floor(angle * 0.6366197723675814 + 0.5)
    rest = (angle - quarters * 1.5707963267948966).to(tl.float32)
    z = rest * rest
    sine = rest * (1 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z / 362880))))
    cosine = 1 + z * (-1 / 2 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 - z / 3628800))))
    quarter = quarters.to(tl.int32) & 3
    odd = (quarter & 1) == 1
    cos = tl.where(odd, sine, cosine) / stretch
    sin = tl.where(odd, cosine, sine) / stretch
    cos = tl.where((quarter == 1) | (quarter == 2), -cos, cos)
    sin = tl.where(quarter >= 2, -sin, sin)
    mine = keys + row.to(tl.int64)[:, None] * 2 * H + d[None, :]
    first = tl.load(mine, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(mine + H, mask=inside, other=0.0).to(tl.float32)
    return first * cos + second * sin, second * cos - first * sin


@triton.jit(
    do_not_specialize=["L"], do_not_specialize_on_alignment=["positions", "spans", "ends", "there"]
)
def survey(
    keys,  # (M, D)
    values,  # (M, C)
    positions,  # (M,) int32
    spans,  # (2, N) int32: where the rows of each head begin,
    ends,  # (N,) int32: and how many are read
    there,  # (N, L) int8
    turns,  # (H,): of a position
    sums,  # (L / S, N, F): of the keys turned back, and of the values
    tops,  # (L / S, N, 2): the largest squared length of a key, and of a value
    L,
    stretch,
    SUMS: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
    S: tl.constexpr,
):
    """S rows of a head; grid (L / S, N)."""
    part, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    begin = tl.load(spans + head)
    length = tl.load(ends + head)
    d, x = tl.arange(0, W), tl.arange(0, X)
    ones, twos = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    means = tl.zeros((X,), tl.float32)
    longest, largest = tl.zeros((T,), tl.float32), tl.zeros((T,), tl.float32)
    for start in range(part * S, tl.minimum(part * S + S, length), T):
        at = start + tl.arange(0, T)
        used = tl.load(there + head * L + at, mask=at < length, other=0) > 0
        one, two = _turned(keys, positions, begin + at, used, turns, stretch, H, W)
        longest = tl.maximum(longest, tl.sum(one * one + two * two, 1))
        mine = (begin + at).to(tl.int64)[:, None] * C + x[None, :]
        value = tl.load(values + mine, mask=used[:, None] & (x < C)[None, :], other=0.0)
        value = value.to(tl.float32)
        largest = tl.maximum(largest, tl.sum(value * value, 1))
        if SUMS:
            ones += tl.sum(one, 0)
            twos += tl.sum(two, 0)
            means += tl.sum(value, 0)
    to = part * tl.num_programs(1) + head
    tl.store(tops + to * 2, tl.max(longest, 0))
    tl.store(tops + to * 2 + 1, tl.max(largest, 0))
    if SUMS:
        tl.store(sums + to * (2 * H + C) + d, ones, mask=d < H)
        tl.store(sums + to * (2 * H + C) + H + d, twos, mask=d < H)
        tl.store(sums + to * (2 * H + C) + 2 * H + x, means, mask=x < C)


@triton.jit(
    do_not_specialize=["L", "group", "heads"],
    do_not_specialize_on_alignment=["positions", "spans", "ends", "there", "wrong"],
)
def feature(
    keys,
    values,
    positions,
    spans,
    ends,
    there,
    turns,
    means,  # (N, F)
    factors,  # (P, D, D): head n has row n // group * heads + n % heads
    value_sizes,  # (P,)
    powers,  # (N,): of two, to multiply by
    highs,  # rows of V float16
    lows,
    sizes,  # of each: squared length, infinite where nothing can join
    places,  # the number beside, if there is one
    starts,  # (N,): the row of the first of each head
    wrong,  # (1,) int32: becomes 1 if something is not finite
    L,
    group,
    heads,
    stretch,
    horizon,
    BESIDE: tl.constexpr,
    FIRST: tl.constexpr,
    V: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
):
    """T rows of a head; grid (L / T, N)."""
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(spans + head)
    length = tl.load(ends + head)
    if tl.program_id(0) * T < length:
        D: tl.constexpr = 2 * H
        at = tl.program_id(0) * T + tl.arange(0, T)
        known = at < length
        used = tl.load(there + head * L + at, mask=known, other=0) > 0
        to = tl.load(starts + head) + at
        # Bits of a float32 that is a power of two.
        scale = ((tl.load(powers + head) + 127) << 23).to(tl.float32, bitcast=True)
        d, x = tl.arange(0, W), tl.arange(0, X)
        mean = means + head * (D + C)
        one, two = _turned(keys, positions, begin + at, used, turns, stretch, H, W)
        one = tl.where(used[:, None], one - tl.load(mean + d, mask=d < H, other=0.0)[None, :], 0.0)
        two -= tl.load(mean + H + d, mask=d < H, other=0.0)[None, :]
        two = tl.where(used[:, None], two, 0.0)
        mine = (begin + at).to(tl.int64)[:, None] * C + x[None, :]
        value = tl.load(values + mine, mask=used[:, None] & (x < C)[None, :], other=0.0)
        value = value.to(tl.float32) - tl.load(mean + D + x, mask=x < C, other=0.0)[None, :]
        own = head // group * heads + head % heads
        value = tl.where(used[:, None], value / tl.load(value_sizes + own), 0.0) * scale
        high, low = halves(value)
        cell = to[:, None] * V + D + x[None, :]
        inside = known[:, None] & (x < C)[None, :]
        tl.store(highs + cell, high, mask=inside)
        tl.store(lows + cell, low, mask=inside)
        size = tl.sum(value * value, 1)
        q = tl.arange(0, 2 * W)
        inside = (d < H)[:, None] & (q < D)[None, :]
        factor = factors + own * D * D + d[:, None] * D + q[None, :]
        upper = tl.load(factor, mask=inside, other=0.0)
        lower = tl.load(factor + H * D, mask=inside, other=0.0)
        made = tl.dot(one, upper, input_precision="tf32x3")
        made = tl.dot(two, lower, made, input_precision="tf32x3") * scale
        size += tl.sum(made * made, 1)
        high, low = halves(made)
        cell = to[:, None] * V + q[None, :]
        fits = known[:, None] & (q < D)[None, :]
        tl.store(highs + cell, high, mask=fits)
        tl.store(lows + cell, low, mask=fits)
        if FIRST:
            odd = used & ~(size < float("inf"))
            tl.store(wrong + 0 * at, 1, mask=odd)
        tl.store(sizes + to, tl.where(used, size, float("inf")), mask=known)
        if BESIDE:
            place = tl.load(positions + begin + at, mask=known, other=0).to(tl.float32) / horizon
            tl.store(places + to, place * scale, mask=known)


# N heads of all layers and streams, L tokens, M rows of slots and tokens, W feature size
# R tokens of a block, T slots of a tile


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


# N heads of all layers and streams, L tokens, M rows of slots and tokens, W feature size
# R tokens of a block, T slots of a tile


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


# N heads of all layers and streams, L tokens, S slots before, M rows of all heads, F feature size
# W the same up to a power of two, R tokens of a block, T slots of a tile


PART = 256  # tokens between two searches
TOP = 15  # rows are scaled so that their largest number has this power of two


class Table:
    """Rows of slots and tokens as halves, and all that a threshold does not change."""

    def __init__(
        self,
        highs: Tensor,  # (M, W) float16, with the next: of a head first slots, then tokens
        lows: Tensor,
        sizes: Tensor,  # (M,): squared lengths, infinite where nothing can join
        places: Tensor | None,  # (M,): the number beside, if there is one
        power: Tensor,  # (N,): of two, by which rows are scaled
        present: Tensor,  # (N, L)
        ends: Tensor,  # (N,): where the tokens of a head end
        lengths: Tensor,  # (N,): slots of each head
        starts: Tensor,  # (N,): the row of the first of them,
        begins: Tensor,  # (N,): and that of the first token
    ) -> None:
        self.rows = (highs, lows, sizes, sizes if places is None else places)
        self.beside, self.power, self.present = places is not None, power.int(), present
        self.ends, self.lengths = ends.int(), lengths.int()
        self.starts, self.begins = starts.long(), begins.long()

    @classmethod
    def of(
        cls, tokens: Tensor, present: Tensor, slots: Tensor, joinable: Tensor, lengths: Tensor
    ) -> Self:
        """Of features: (N, L, F) tokens and (N, S, F) slots."""
        centre = (present[:, None].float() @ tokens)[:, 0] / present.sum(1).clamp(min=1)[:, None]
        (N, L, F), S = tokens.shape, slots.shape[1]
        halved = placed(F)
        centre[:, halved:] = 0.0
        most = torch.maximum(*(_most(r[..., :halved], centre[:, :halved]) for r in (tokens, slots)))
        # A power of two, so that scaling rounds nothing.
        power = torch.where(most > 0, TOP - torch.frexp(most).exponent, 0).clamp(-60, 60).int()
        width = max(16, triton.next_power_of_2(halved))
        like = {"device": tokens.device}
        highs = torch.empty(N * (S + L), width, dtype=torch.float16, **like)
        lows = torch.empty_like(highs)
        sizes = torch.empty(N * (S + L), dtype=torch.float32, **like)
        places = torch.empty_like(sizes) if halved < F else None
        for rows, there, place in ((slots, joinable, 0), (tokens, present, S)):
            if rows.shape[1]:
                halve[(triton.cdiv(rows.shape[1], 32), N)](
                    rows.contiguous(), there.to(torch.int8).contiguous(), centre, power,
                    highs, lows, sizes, sizes if places is None else places, rows.shape[1], S + L,
                    place, F=F, H=halved, W=width, R=32,
                )  # fmt: skip
        starts = (S + L) * torch.arange(N, **like)
        ends = (present * torch.arange(1, L + 1, **like)).amax(1)
        return cls(highs, lows, sizes, places, power, present, ends, lengths, starts, starts + S)

    def route(self, reach: Tensor, *, last: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Owner (N, L), whether it was opened (N, L), and slots (N,); a ``last`` time or not.

        Owners and slots are of one head, and so in int32.
        """
        (N, L), W = self.present.shape, self.rows[0].shape[1]
        rows = self.rows if last else tuple(t.clone() for t in self.rows)
        like = {"device": reach.device}
        bars, best = torch.empty(2, N, L, dtype=torch.float32, **like)
        owner = torch.empty(N, L, dtype=torch.int32, **like)
        opened = torch.empty(N, L, dtype=torch.int8, **like)
        counts = torch.empty_like(self.lengths)
        words = {"BESIDE": self.beside}
        raise_bars[(triton.cdiv(L, 512), N)](
            reach, self.present.contiguous().view(torch.int8), self.power, self.begins,
            self.lengths, *rows[2:], bars, owner, opened, counts, *reach.stride(), L,
            TIE=TIE, OFF=OFF, T=512, **words,
        )  # fmt: skip
        table = (*rows, self.starts, self.begins, self.ends, counts)
        wide, narrow = cut(min(L, PART), W, 128), cut(min(L, PART), W, 64)
        for begin in range(0, L, PART):
            part = min(PART, L - begin)
            search[(triton.cdiv(part, wide["R"]), N)](
                *table, bars, best, owner, begin, L, W=W, **words, **wide
            )
            settle[(N,)](*table, bars, best, owner, opened, begin, part, L, W=W, **words, **narrow)
        return owner, opened.view(torch.bool), counts


def cut(n_tokens: int, width: int, most: int) -> dict[str, int]:
    """Tokens of a block and slots of a tile: as much as lies beside the processors."""
    R = max(16, min(most, 2**14 // width, triton.next_power_of_2(n_tokens)))
    T = 32 if max(R, 64) * width > 2**14 else 64
    return {"R": R, "T": T, "num_warps": max(4, R // 16), "num_stages": 3 if width <= 64 else 2}


def _most(rows: Tensor, centre: Tensor) -> Tensor:
    """The largest distance of a number from the centre, (N,)."""
    if not rows.shape[1]:
        return centre.new_zeros(len(rows))
    low, high = rows.aminmax(dim=1)
    return torch.maximum(high - centre, centre - low).amax(1)


@triton.jit(do_not_specialize=["L", "P", "place"])
def halve(
    rows,  # (N, L, F) float32
    there,  # (N, L): 0 where nothing can join
    centres,  # (N, F)
    powers,  # (N,): of two, to multiply by
    highs,  # (N, P, W) float16
    lows,
    sizes,  # (N, P): squared lengths, infinite where nothing can join
    places,  # (N, P): the number beside, if there is one
    L,
    P,
    place,  # where the rows go
    F: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
):
    """Rows less their centre, scaled, as two halves; grid (L / R, N)."""
    head = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * R + tl.arange(0, R)
    d = tl.arange(0, W)
    inside = (at < L)[:, None] & (d < H)[None, :]
    mine = tl.load(rows + (head * L + at)[:, None] * F + d[None, :], mask=inside, other=0.0)
    centre = tl.load(centres + head * F + d, mask=d < H, other=0.0)
    # Bits of a float32 that is a power of two.
    scale = ((tl.load(powers + head) + 127) << 23).to(tl.float32, bitcast=True)
    mine = tl.where(inside, (mine - centre[None, :]) * scale, 0.0)
    high, low = halves(mine)
    to = (head * P + place + at)[:, None] * W + d[None, :]
    tl.store(highs + to, high, mask=(at < L)[:, None])
    tl.store(lows + to, low, mask=(at < L)[:, None])
    joins = tl.load(there + head * L + at, mask=at < L, other=0) > 0
    size = tl.where(joins, tl.sum(mine * mine, 1), float("inf"))
    tl.store(sizes + head * P + place + at, size, mask=at < L)
    if H < F:
        own = tl.load(rows + (head * L + at) * F + H, mask=at < L, other=0.0)
        own = (own - tl.load(centres + head * F + H)) * scale
        tl.store(places + head * P + place + at, own, mask=at < L)


# N heads of all layers and streams, L the most rows of a head
# D key size, C value size, F = D + C


ROWS, ROWS_WIDE, WARPS = 64, 32, 4  # of features at a time, fewer of more than 64 numbers
SPAN, STEP = 512, 16  # rows of a survey, and at a time


class Rows(NamedTuple):
    """Slots, or tokens as slots of one, and which of them may be joined: (N, L)."""

    slots: Slots
    there: Tensor


def tabulate(
    tokens: Rows, slots: Rows | None, scale: Scale, rotary: Rotary, horizon: float | None
) -> tuple[Table, Tensor]:
    """The table of tokens and of the slots before them, and whether a token is not finite, ()."""
    present = tokens.there
    device, N = present.device, len(present)
    C, D = tokens.slots.values.shape[1], tokens.slots.keys.shape[1]
    starts = tokens.slots.spans()[0].long()
    lengths = torch.zeros_like(tokens.slots.spans()[0])
    parts = [tokens] if slots is None else [tokens, slots]
    if slots is not None:
        lengths = slots.slots.sizes()
        starts = starts + lengths.cumsum(0) - lengths
    begins = starts + lengths
    n_rows = sum(len(rows) for rows, _ in parts)
    steps = torch.arange(1, present.shape[1] + 1, device=device, dtype=torch.int32)
    # Of a head without tokens nothing is asked.
    ends = (present * steps).amax(1)
    read = (ends, torch.where(ends > 0, lengths, 0))
    turns = rotary.frequencies.to(device).contiguous()
    means, power = _centre(parts, read, scale, turns, rotary.scaling)
    step = ROWS if max(D, C) <= 64 else ROWS_WIDE
    width = max(16, triton.next_power_of_2(D + C))
    new = torch.empty if width == D + C else torch.zeros
    highs, lows = (new(n_rows, width, dtype=torch.float16, device=device) for _ in range(2))
    sizes = torch.empty(n_rows, dtype=torch.float32, device=device)
    places = sizes if horizon is None else torch.empty_like(sizes)
    wrong = torch.zeros(1, dtype=torch.int32, device=device)
    for (rows, there), end, to in zip(parts, read, (begins, starts), strict=False):
        if len(rows):
            feature[(triton.cdiv(there.shape[1], step), N)](
                rows.keys, rows.values, rows.positions, rows.spans(), end,
                there.contiguous().view(torch.int8), turns, means, scale.factor, scale.size, power,
                highs, lows, sizes, places, to, wrong, there.shape[1], scale.group, scale.heads,
                rotary.scaling, float(horizon or 1.0), BESIDE=horizon is not None,
                FIRST=to is begins, V=width, **_sizes(D, C), T=step, num_warps=WARPS,
            )  # fmt: skip
    beside = None if horizon is None else places
    table = Table(highs, lows, sizes, beside, power, present, ends, lengths, starts, begins)
    return table, wrong[0] > 0


def _centre(parts, read, scale, turns, stretch):
    """The mean key and value of the tokens, (N, F), and the power of two to scale rows by, (N,)."""
    tops = []
    for (rows, there), end in zip(parts, read, strict=False):
        (N, L), D, C = there.shape, rows.keys.shape[1], rows.values.shape[1]
        n_parts = max(triton.cdiv(L, SPAN), 1)
        sums = rows.keys.new_zeros(n_parts, N, D + C, dtype=torch.float32)
        most = sums.new_zeros(n_parts, N, 2)
        first = not tops
        survey[(n_parts, N)](
            rows.keys, rows.values, rows.positions, rows.spans(), end,
            there.contiguous().view(torch.int8), turns, sums, most, L, stretch,
            SUMS=first, **_sizes(D, C), T=STEP, S=SPAN,
        )  # fmt: skip
        if first:
            count = there.sum(1).clamp(min=1)
            means = sums.sum(0) / count[:, None]
        tops.append(most.amax(0))
    longest = torch.stack(tops).amax(0).sqrt()
    wide = torch.linalg.vector_norm(scale.factor, dim=1).amax(1)
    wide = wide.view(-1, 1, scale.heads).expand(-1, scale.group // scale.heads, -1).reshape(-1)
    # Less a mean that is no longer, a row is at most twice as long.
    bound = 2 * torch.maximum(longest[:, 0] * wide, longest[:, 1] / scale.sizes)
    power = torch.where(bound > 0, TOP - torch.frexp(bound).exponent, 0).clamp(-60, 60)
    return means, power.int()


def _sizes(D, C):
    wide = max(16, triton.next_power_of_2(D // 2))
    return {"H": D // 2, "W": wide, "C": C, "X": triton.next_power_of_2(C)}
