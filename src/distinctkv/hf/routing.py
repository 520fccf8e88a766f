"""`allocation.allocate` on CUDA: two kernels for each part of the text, and no waiting.

`search` finds the nearest of the slots that were open before the part, for all its tokens at once.
`settle` goes through the part block by block: the nearest of the slots opened since, then which
tokens of the block open one. A slot's row is moved down within the table of tokens: there is never
more of it than there are rows behind. Products are of float16 halves, so they are true to 22 bits,
as float32 is after a sum; distances never lie in memory. Where features have a place
(`allocation.placed`), that one stays in float32 beside the halves.
"""

# N heads of all layers and streams, L tokens, S slots before, M rows of all heads, F feature size
# W the same up to a power of two, R tokens of a block, T slots of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from typing import Self

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..nn.kernels.bounds import OFF, TIE, placed
from ..nn.kernels.halves import halves
from .seeking import search
from .settling import raise_bars, settle

PART = 1024  # tokens between two searches
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
