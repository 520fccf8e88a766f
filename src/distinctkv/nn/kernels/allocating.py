"""Allocation of whole streams on the device: the rule's decisions, chunk by chunk, no waiting.

The host only launches: how many slots are open is known to the device alone. A chunk is searched
against the slots (`nearest`), sorted (`sieve`) and settled (`pairs`, `settle`, `append`). What
decides nothing waits until all slots are known: which slot is nearest, for tokens where that is
not certain yet (`again`; `refine` where 16 bits cannot tell; `recheck` where float32 cannot), and
what follows from it all (`look_back`, `conclude`).
"""

# N streams, L tokens, S room for slots, D key size, C tokens of a chunk

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from .bounds import FURTHEST, fine, rough
from .concluding import conclude, look_back
from .halves import prepare, refine
from .law import measure, recheck
from .laying import Laid
from .nearest import again, nearest, ranks
from .pairs import pairs
from .settle import append, settle
from .sieve import LEAD, NEAR, NOVEL, line_up, sieve
from .tiles import tiles


class Cut(NamedTuple):
    """How the work is cut: tokens of a chunk and of a block, slots of a tile, and so on."""

    chunk: int = 1024
    block: int = 256
    tile: int = 64
    parts: int = 1
    settle: int = 64
    warps: int = 8
    stages: int = 3


def cut(n_streams: int, n_tokens: int, width: int) -> Cut:
    """A cut that keeps the device busy."""
    many = n_streams >= 64
    chunk = min(1024 if many else 4096, max(128, triton.next_power_of_2(n_tokens)))
    return Cut(chunk) if many and width <= 128 else Cut(chunk, block=128, warps=4)


class Room(NamedTuple):
    """Slots from before (N, any, D), how many are filled (N,), and how many there may be."""

    slots: Tensor
    n_slots: Tensor
    capacity: int


class Assigned(NamedTuple):
    """Who leads (N, L), the slot of each token, -1 for padding, and the opener of each (N, S)."""

    lead: Tensor
    slot: Tensor
    opener: Tensor


class Run:
    """One allocation: its tables on the device, and the launches in their order."""

    def __init__(
        self,
        rows: Tensor,
        tau: Tensor,
        valid: Tensor,
        room: Room,
        how: Cut | None = None,
        laid: Laid | None = None,
    ) -> None:
        N, L, D = rows.shape
        self.laid, self.room, self.how = laid, room.capacity, how or cut(N, L, D)
        self.rows, self.valid = rows.contiguous(), valid.to(torch.int8).contiguous()
        self.before = room.n_slots.int()
        self.tau = tau.masked_fill(tau >= FURTHEST, inf)
        # Slots lie further than tau apart, so less than half that far only one can be nearest.
        # What lay there before may lie closer.
        self.certain = torch.where(room.n_slots > 0, -inf, self.tau / 4).float()
        self.open, self.lost = self.before.clone(), torch.zeros_like(self.before)
        self.states = torch.empty(N, L, dtype=torch.int8, device=rows.device)
        self.found = torch.empty(N, L, dtype=torch.int32, device=rows.device)
        self._halve()
        self._hold(room.slots)
        self._scratch()
        for begin in range(0, L, self.how.chunk):
            self._search(begin)
            self._settle(begin)

    def _halve(self) -> None:
        """Keys in 16 bits, and how far from one they are."""
        if self.laid is not None:
            self.halved, self.strays = self.laid.halved, self.laid.strays.view(torch.float32)
            return
        N, L, D = self.rows.shape
        self.halved = torch.empty_like(self.rows, dtype=torch.float16)
        strays = torch.zeros(N, dtype=torch.int32, device=self.rows.device)
        prepare[(triton.cdiv(L, 64), N)](self.rows, self.valid, self.halved, strays, L, D=D, R=64)
        self.strays = strays.view(torch.float32)

    def _hold(self, slots: Tensor) -> None:
        """Room for slots, and those that were there before."""
        N, _, D = self.rows.shape
        before = slots.shape[1]
        self.slots = self.rows.new_empty(N, self.room, D)
        self.shifts = self.rows.new_empty(N, self.room)
        self.highs, self.lows = self.rows.new_empty(2, N, self.room, D, dtype=torch.float16)
        if not before:
            return
        slots = slots.float()
        self.slots[:, :before] = slots
        self.highs[:, :before] = slots
        self.lows[:, :before] = slots - slots.half().float()
        square = slots.square().sum(-1)
        self.shifts[:, :before] = (1 - square) / 2
        used = torch.arange(before, device=slots.device) < self.before[:, None]
        stray = torch.where(used, (square - 1).abs() / 2, 0).amax(1)
        self.strays = torch.maximum(self.strays, stray)

    def _scratch(self) -> None:
        """Tables that a chunk needs; the next one overwrites them."""
        N, how = self.rows.shape[0], self.how
        words = self.rows.new_empty(0, dtype=torch.int32)
        self.searched = words.new_empty(3, how.parts, N, how.chunk).unbind()
        self.queues, self.given = words.new_empty(2, N, how.chunk)
        self.sizes = words.new_empty(N)
        self.within = words.new_empty(N, how.chunk, how.chunk // 32)
        self.ranks = ranks(how.tile, words.device)
        self.tokens_in = tiles(self.halved, how.block)
        self.slots_in = tiles(self.highs, how.tile)

    def _search(self, begin: int) -> None:
        """Which of the tokens from ``begin`` on the slots cover."""
        N, L, D = self.rows.shape
        how = self.how
        blocks = triton.cdiv(how.chunk, how.block)
        nearest[(blocks, how.parts, N)](
            self.tokens_in, self.slots_in, self.ranks, self.open, *self.searched,
            begin, L, self.room,
            R=how.block, T=how.tile, num_warps=how.warps, num_stages=how.stages,
        )  # fmt: skip
        sieve[(blocks, N)](
            *self.searched, self.rows, self.slots, self.open, self.tau, self.certain, self.strays,
            self.valid, self.states, self.found, rough(D), begin, how.chunk, L, self.room,
            D=D, R=how.block, T=how.tile, P=how.parts, enable_fp_fusion=False,
        )  # fmt: skip

    def _settle(self, begin: int) -> None:
        """Which of the novel ones among them open a slot."""
        N, L, D = self.rows.shape
        C, R, S = self.how.chunk, self.how.settle, self.room
        queue = (self.queues, self.sizes)
        self._line_up(self.states, 1 << NOVEL.value, begin, C, *queue)
        pairs[(triton.cdiv(C, R), N)](
            self.rows, self.halved, *queue, self.tau, self.strays, self.within, rough(D), fine(D),
            L, D=D, R=R, W=C // 32, enable_fp_fusion=False,
        )  # fmt: skip
        settle[(N,)](
            self.within, *queue, self.open, self.lost, self.states, self.found, self.given, L, S,
            R=R, W=C // 32,
        )  # fmt: skip
        append[(triton.cdiv(C, 32), N)](
            self.rows, *queue, self.states, self.given, self.slots, self.highs, self.lows,
            self.shifts, C, L, S, D=D, R=32,
        )  # fmt: skip

    def _line_up(
        self, states: Tensor, wanted: int, begin: int, C: int, queues: Tensor, sizes: Tensor
    ) -> None:
        N, L, _ = self.rows.shape
        width = min(1024, triton.next_power_of_2(C))
        line_up[(N,)](states, queues, sizes, wanted, begin, C, L, R=width)

    def leads(self) -> Tensor:
        """Which tokens opened a slot (N, L)."""
        lead: Tensor = self.states == LEAD.value
        return lead

    @cached_property
    def visible(self) -> Tensor:
        """Slots that were open when a token came (N, L)."""
        N, L, _ = self.rows.shape
        visible = torch.empty_like(self.found)
        width = min(4096, max(16, triton.next_power_of_2(L)))
        look_back[(N,)](self.states, self.before, visible, L, R=width)
        return visible

    def assigned(self) -> Assigned:
        """Which tokens opened a slot, the slot of each token, and the token of each slot."""
        N, L, _ = self.rows.shape
        found = self.nearest(leaders=False)
        lead, slot = torch.empty_like(self.states), torch.empty_like(found)
        opener = slot.new_full((N, self.room), -1, dtype=torch.int64)
        conclude[(triton.cdiv(L, 1024), N)](
            self.states, self.valid, found, self.visible, lead, slot, opener, L, self.room, R=1024
        )
        return Assigned(lead.view(torch.bool), slot, opener)

    def nearest(self, *, leaders: bool = True) -> Tensor:
        """The nearest slot that was open when a token came (N, L), or -1.

        Without ``leaders`` theirs is not looked for, which takes less time. No decision needs it.
        """
        N, L, D = self.rows.shape
        S, how = self.room, self.how
        visible = self.visible
        doubts = torch.zeros_like(self.states)
        queue = (torch.empty_like(self.found), self.sizes)
        whole = (visible, self.found)
        self._line_up(self.states, 1 << NEAR.value | leaders << LEAD.value, 0, L, *queue)
        again[(triton.cdiv(L, how.block), N)](
            self.halved, self.slots_in, self.ranks, *queue, visible, self.strays, self.found,
            doubts, rough(D), L, S,
            D=D, R=how.block, T=how.tile, num_warps=how.warps, num_stages=how.stages,
        )  # fmt: skip
        self._line_up(doubts, 2, 0, L, *queue)
        R, T = (128, 64) if D <= 128 else (64, 32)  # what fits beside the processors
        refine[(triton.cdiv(L, R), N)](
            self.rows, tiles(self.highs, T), tiles(self.lows, T), self.shifts, *queue, *whole,
            doubts, fine(D), L, S, D=D, R=R, T=T, num_warps=R // 16, num_stages=2,
        )  # fmt: skip
        self._line_up(doubts, 2, 0, L, *queue)
        recheck[(min(L, 64), N)](
            self.rows, self.slots, *queue, *whole, L, S, D=D, T=64, enable_fp_fusion=False
        )
        return self.found

    def novelty(self) -> Tensor:
        """Half the squared distance to the nearest slot (N, L)."""
        N, L, D = self.rows.shape
        novelty = self.rows.new_empty(N, L)
        measure[(triton.cdiv(L, 64), N)](
            self.rows, self.slots, self.found, self.valid, novelty, L, self.room, D=D, R=64
        )
        return novelty
