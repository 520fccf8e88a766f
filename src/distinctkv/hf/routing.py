"""`allocation.allocate` on CUDA: two kernels for each part of the text, and no waiting.

`search` finds the nearest of the slots that were open before the part, for all its tokens at once.
`settle` goes through the part block by block: the nearest of the slots opened since, then which
tokens of the block open one. A slot's row is moved down within the table of tokens: there is never
more of it than there are rows behind. Products are of float16 halves, so they are true to 22 bits,
as float32 is after a sum; distances never lie in memory. Where features have a place
(`allocation.placed`), that one stays in float32 beside the halves.
"""

# N heads of all layers and streams, L tokens, S slots before, P = S + L, F feature size
# R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from math import inf

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..nn.kernels.halves import halves, product
from ..nn.kernels.settle import rounds
from .allocation import band, placed
from .seeking import apart, search, seek

PART = 1024  # tokens between two searches
TOP = 15  # rows are scaled so that their largest number has this power of two


class Table:
    """Rows of slots and tokens as halves, and all that a threshold does not change."""

    def __init__(
        self, tokens: Tensor, present: Tensor, slots: Tensor, joinable: Tensor, lengths: Tensor
    ) -> None:
        self.present, self.lengths, self.S = present, lengths.int(), slots.shape[1]
        centre = (present[:, None].float() @ tokens)[:, 0] / present.sum(1).clamp(min=1)[:, None]
        N, L, F = tokens.shape
        halved = placed(F)
        self.beside = halved < F
        centre[:, halved:] = 0.0
        most = torch.maximum(*(_most(r[..., :halved], centre[:, :halved]) for r in (tokens, slots)))
        # A power of two, so that scaling rounds nothing.
        self.power = torch.where(most > 0, TOP - torch.frexp(most).exponent, 0).clamp(-60, 60)
        width = max(16, triton.next_power_of_2(halved))
        like = {"device": tokens.device}
        self.highs = torch.empty(N, self.S + L, width, dtype=torch.float16, **like)
        self.lows = torch.empty_like(self.highs)
        self.sizes = torch.empty(N, self.S + L, **like)
        self.places = torch.empty_like(self.sizes) if self.beside else self.sizes
        for rows, there, place in ((slots, joinable, 0), (tokens, present, self.S)):
            if rows.shape[1]:
                halve[(triton.cdiv(rows.shape[1], 32), N)](
                    rows.contiguous(), there.to(torch.int8).contiguous(), centre, self.power.int(),
                    self.highs, self.lows, self.sizes, self.places, rows.shape[1], self.S + L,
                    place, F=F, H=halved, W=width, R=32,
                )  # fmt: skip

    def route(self, reach: Tensor, *, last: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Owner (N, L), whether it was opened (N, L), and slots (N,); a ``last`` time or not."""
        N, P, W = self.highs.shape
        L = P - self.S
        held = (self.highs, self.lows, self.sizes, self.places)
        highs, lows, sizes, places = held if last else (t.clone() for t in held)
        own = sizes[:, self.S :]
        near = torch.ldexp(reach.float(), 2 * self.power[:, None])
        bars = near + band(near, own, places[:, self.S :] if self.beside else None) - own
        alone = reach < 0
        bars = bars.clamp(max=torch.finfo(torch.float32).max).masked_fill(alone, -inf)
        bars = bars.masked_fill(~self.present, inf)
        own.masked_fill_(alone, inf)
        counts = self.lengths.clone()
        best = torch.empty(N, L, device=highs.device)
        owner = torch.empty(N, L, dtype=torch.int32, device=highs.device)
        opened = torch.empty(N, L, dtype=torch.int8, device=highs.device)
        ends = (self.present * torch.arange(1, L + 1, device=highs.device)).amax(1).int()
        table = (highs, lows, sizes, places, ends, counts)
        words = {"W": W, "BESIDE": self.beside}
        wide, narrow = cut(min(L, PART), W, 128), cut(min(L, PART), W, 64)
        for begin in range(0, L, PART):
            part = min(PART, L - begin)
            search[(triton.cdiv(part, wide["R"]), N)](
                *table, best, owner, begin, L, P, self.S, **words, **wide
            )
            settle[(N,)](
                *table, bars, best, owner, opened, begin, part, L, P, self.S, **words, **narrow
            )
        found = torch.where(self.present, owner, -1)
        return found.long(), (opened > 0) & self.present, counts.long()


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


@triton.jit(do_not_specialize=["begin", "part", "L", "P", "S"])
def settle(
    highs,
    lows,
    sizes,
    places,
    ends,
    counts,
    bars,  # (N, L): the reach less the token's own size; -inf opens, inf is not there
    best,
    owner,
    opened,  # (N, L)
    begin,
    part,
    L,
    P,
    S,
    W: tl.constexpr,
    BESIDE: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Who opens a slot of ``part`` tokens from ``begin`` on, and whose the rest join; grid (N,)."""
    head = tl.program_id(0).to(tl.int64)
    base = head * P
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
        at = base + S + token
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
        who = tl.min(tl.where(close == least[:, None], new[None, :], P), 1)
        slot = tl.where(lead, new, tl.where(least < far, who, slot))
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
