"""Allocation of whole sequences on the device: the launches in their order.

The host only launches: how many slots are open is known to the device alone. A chunk is searched
against the slots (`nearest`), classified (`classify`) and resolved (`adjacency`, `resolve`,
`append_slots`). What decides nothing waits until all slots are known: which slot is nearest, for
tokens where that is not certain yet (`second_pass`; `split_pass` where 16 bits cannot tell;
`exact_pass` where float32 cannot), and what follows from it (`count_leaders`, `write_assignment`).
"""

# B sequences, H heads, N = B H, L tokens, S room for slots, D key size, C tokens of a chunk,
# R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .fp16_split import prepare, split_pass
from .independent_set import adjacency, append_slots, resolve
from .limits import FURTHEST, LENGTHS, fine, rough
from .nearest import (
    COVERED,
    LEADER,
    NOVEL,
    classify,
    compact,
    exact_pass,
    nearest,
    second_pass,
    tie_breaks,
    tiles,
)


class Layout(NamedTuple):
    """Keys stream by stream, by `lay_out`: (N, L, D) twice, (N, L), and (N,) twice."""

    rows: Tensor
    halved: Tensor
    valid: Tensor
    deviations: Tensor
    refused: Tensor


def lay_out_keys(keys: Tensor, tau: Tensor, mask: Tensor | None) -> Layout:
    """Streams from keys (B, L, H, D), tau (N,) and a mask (B, L), read once and copied."""
    B, L, H, D = keys.shape
    keys = keys if keys.stride(3) == 1 else keys.contiguous()
    rows = keys.new_empty(B * H, L, D, dtype=torch.float32)
    halved = torch.empty_like(rows, dtype=torch.float16)
    valid = torch.empty_like(rows[..., 0], dtype=torch.int8)
    deviations, refused = torch.zeros(2, B * H, dtype=torch.int32, device=keys.device)
    real = valid if mask is None else mask.to(torch.int8).contiguous()
    known = (~tau.isnan()).to(torch.int8)
    lay_out[(triton.cdiv(L, 64), B * H)](
        keys, real, known, rows, halved, valid, deviations, refused, L, H, *keys.stride()[:3],
        LENGTHS[0] ** 2, LENGTHS[1] ** 2, MASKED=mask is not None, D=D, R=64,
    )  # fmt: skip
    return Layout(rows, halved, valid, deviations, refused)


@triton.jit
def lay_out(
    keys,  # (B, L, H, D), floats of 16 or 32 bits, rows in one piece each
    mask,  # (B, L): 0 where padding; not looked at unless MASKED
    known,  # (N,): 0 where tau is nan
    rows,  # (N, L, D) float32: the keys go here
    halved,  # (N, L, D) float16: and here
    valid,  # (N, L): 1 for real tokens whose keys have length one
    deviations,  # (N,): as by `prepare`
    refused,  # (N,): real tokens whose keys have not, or whose tau is nan
    L,
    H,
    to_stream,
    to_token,
    to_head,
    least,  # squared lengths that pass for one
    most,
    MASKED: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """Keys stream by stream, and what `prepare` finds, in one pass; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = block * R + tl.arange(0, R)
    place = stream.to(tl.int64) * L + token
    inside = token < L
    batch, head = (stream // H).to(tl.int64), (stream % H).to(tl.int64)
    d = tl.arange(0, D)[None, :]
    given = keys + batch * to_stream + head * to_head
    mine = tl.load(
        given + token.to(tl.int64)[:, None] * to_token + d, mask=inside[:, None], other=0.0
    )
    mine = mine.to(tl.float32)
    tl.store(rows + place[:, None] * D + d, mine, mask=inside[:, None])
    tl.store(halved + place[:, None] * D + d, mine.to(tl.float16), mask=inside[:, None])
    square = tl.sum(mine * mine, 1)
    good = (square > least) & (square < most) & (tl.load(known + stream) > 0)
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + batch * L + token, mask=inside, other=0) > 0)
    tl.store(valid + place, (real & good).to(tl.int8), mask=inside)
    deviation = tl.where(real & good, tl.abs(square - 1) / 2, 0.0)
    tl.atomic_max(deviations + stream, tl.max(deviation, 0).to(tl.int32, bitcast=True))
    tl.atomic_add(refused + stream, tl.sum((real & (good == 0)).to(tl.int32), 0))


@triton.jit
def count_leaders(
    states,  # (N, L)
    before,  # (N,): slots from before all tokens
    visible,  # (N, L): slots open when a token came go here
    L,
    R: tl.constexpr,
):
    """Count the leaders before each token; grid (N,)."""
    stream = tl.program_id(0)
    total = tl.load(before + stream)
    for start in range(0, L, R):
        token = start + tl.arange(0, R)
        place = stream.to(tl.int64) * L + token
        lead = (tl.load(states + place, mask=token < L, other=0) == LEADER).to(tl.int32)
        tl.store(visible + place, total + tl.cumsum(lead, 0) - lead, mask=token < L)
        total += tl.sum(lead, 0)


@triton.jit
def write_assignment(
    states,  # (N, L)
    valid,  # (N, L): 0 where padding
    found,  # (N, L): the nearest slot of those that merge
    visible,  # (N, L)
    leads,  # (N, L) int8: 1 where a token opened a slot
    slots,  # (N, L): the slot of each, -1 for padding
    openers,  # (N, S) int64: the token that opened a slot; others are left as they are
    L,
    S,
    R: tl.constexpr,
):
    """The slot of each token, and the token of each slot; grid (L / R, N)."""
    stream = tl.program_id(1)
    token = tl.program_id(0) * R + tl.arange(0, R)
    inside = token < L
    place = stream.to(tl.int64) * L + token
    lead = inside & (tl.load(states + place, mask=inside, other=0) == LEADER)
    own = tl.load(visible + place, mask=inside, other=0)
    slot = tl.where(lead, own, tl.load(found + place, mask=inside, other=-1))
    real = tl.load(valid + place, mask=inside, other=0) > 0
    tl.store(leads + place, lead.to(tl.int8), mask=inside)
    tl.store(slots + place, tl.where(real, slot, -1), mask=inside)
    tl.store(openers + stream.to(tl.int64) * S + own, token.to(tl.int64), mask=lead)


class LaunchConfig(NamedTuple):
    """How the work is cut: tokens of a chunk and of a block, slots of a tile, and so on."""

    chunk: int = 1024
    block: int = 256
    tile: int = 64
    settle: int = 64
    warps: int = 8
    stages: int = 3


def launch_config(n_streams: int, n_tokens: int, width: int) -> LaunchConfig:
    """A cut that keeps the device busy."""
    many = n_streams >= 64
    chunk = min(1024 if many else 4096, max(128, triton.next_power_of_2(n_tokens)))
    return LaunchConfig(chunk) if many and width <= 128 else LaunchConfig(chunk, block=128, warps=4)


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
        config: LaunchConfig | None = None,
        laid: Layout | None = None,
    ) -> None:
        N, L, D = rows.shape
        self.laid, self.room, self.config = laid, room.capacity, config or launch_config(N, L, D)
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
        for begin in range(0, L, self.config.chunk):
            self._search(begin)
            self._resolve(begin)

    def _halve(self) -> None:
        """Keys in 16 bits, and how far from one they are."""
        if self.laid is not None:
            self.halved, self.deviations = (
                self.laid.halved,
                self.laid.deviations.view(torch.float32),
            )
            return
        N, L, D = self.rows.shape
        self.halved = torch.empty_like(self.rows, dtype=torch.float16)
        deviations = torch.zeros(N, dtype=torch.int32, device=self.rows.device)
        prepare[(triton.cdiv(L, 64), N)](
            self.rows, self.valid, self.halved, deviations, L, D=D, R=64
        )
        self.deviations = deviations.view(torch.float32)

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
        deviation = torch.where(used, (square - 1).abs() / 2, 0).amax(1)
        self.deviations = torch.maximum(self.deviations, deviation)

    def _scratch(self) -> None:
        """Tables that a chunk needs; the next one overwrites them."""
        N, config = self.rows.shape[0], self.config
        words = self.rows.new_empty(0, dtype=torch.int32)
        self.searched = words.new_empty(3, N, config.chunk).unbind()
        self.indices, self.given = words.new_empty(2, N, config.chunk)
        self.sizes = words.new_empty(N)
        self.adjacent = words.new_empty(N, config.chunk, config.chunk // 32)
        self.tie_breaks = tie_breaks(config.tile, words.device)
        self.tokens_in = tiles(self.halved, config.block)
        self.slots_in = tiles(self.highs, config.tile)

    def _search(self, begin: int) -> None:
        """Which of the tokens from ``begin`` on the slots cover."""
        N, L, D = self.rows.shape
        config = self.config
        blocks = triton.cdiv(config.chunk, config.block)
        nearest[(blocks, N)](
            self.tokens_in, self.slots_in, self.tie_breaks, self.open, *self.searched,
            begin, L, self.room,
            R=config.block, T=config.tile, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
        classify[(blocks, N)](
            *self.searched, self.rows, self.slots, self.open, self.tau, self.certain,
            self.deviations, self.valid, self.states, self.found, rough(D), begin, config.chunk, L,
            self.room, D=D, R=config.block, T=config.tile, enable_fp_fusion=False,
        )  # fmt: skip

    def _resolve(self, begin: int) -> None:
        """Which of the novel ones among them open a slot."""
        N, L, D = self.rows.shape
        C, R, S = self.config.chunk, self.config.settle, self.room
        index_list = (self.indices, self.sizes)
        self._compact(self.states, 1 << NOVEL.value, begin, C, *index_list)
        adjacency[(triton.cdiv(C, R), N)](
            self.rows, self.halved, *index_list, self.tau, self.deviations, self.adjacent,
            rough(D), fine(D), L, D=D, R=R, W=C // 32, enable_fp_fusion=False,
        )  # fmt: skip
        resolve[(N,)](
            self.adjacent, *index_list, self.open, self.lost, self.states, self.found, self.given,
            L, S, R=R, W=C // 32,
        )  # fmt: skip
        append_slots[(triton.cdiv(C, 32), N)](
            self.rows, *index_list, self.states, self.given, self.slots, self.highs, self.lows,
            self.shifts, C, L, S, D=D, R=32,
        )  # fmt: skip

    def _compact(
        self, states: Tensor, wanted: int, begin: int, C: int, indices: Tensor, sizes: Tensor
    ) -> None:
        N, L, _ = self.rows.shape
        width = min(1024, triton.next_power_of_2(C))
        compact[(N,)](states, indices, sizes, wanted, begin, C, L, R=width)

    def leads(self) -> Tensor:
        """Which tokens opened a slot (N, L)."""
        lead: Tensor = self.states == LEADER.value
        return lead

    @cached_property
    def visible(self) -> Tensor:
        """Slots that were open when a token came (N, L)."""
        N, L, _ = self.rows.shape
        visible = torch.empty_like(self.found)
        width = min(4096, max(16, triton.next_power_of_2(L)))
        count_leaders[(N,)](self.states, self.before, visible, L, R=width)
        return visible

    def assigned(self) -> Assigned:
        """Which tokens opened a slot, the slot of each token, and the token of each slot."""
        N, L, _ = self.rows.shape
        found = self.nearest()
        lead, slot = torch.empty_like(self.states), torch.empty_like(found)
        opener = slot.new_full((N, self.room), -1, dtype=torch.int64)
        write_assignment[(triton.cdiv(L, 1024), N)](
            self.states, self.valid, found, self.visible, lead, slot, opener, L, self.room, R=1024
        )
        return Assigned(lead.view(torch.bool), slot, opener)

    def nearest(self) -> Tensor:
        """The nearest slot that was open when a token came (N, L), or -1; not that of leaders."""
        N, L, D = self.rows.shape
        S, config = self.room, self.config
        visible = self.visible
        ambiguous = torch.zeros_like(self.states)
        index_list = (torch.empty_like(self.found), self.sizes)
        whole = (visible, self.found)
        self._compact(self.states, 1 << COVERED.value, 0, L, *index_list)
        second_pass[(triton.cdiv(L, config.block), N)](
            self.halved, self.slots_in, self.tie_breaks, *index_list, visible, self.deviations,
            self.found, ambiguous, rough(D), L, S,
            D=D, R=config.block, T=config.tile, num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
        self._compact(ambiguous, 2, 0, L, *index_list)
        R, T = (128, 64) if D <= 128 else (64, 32)  # what fits beside the processors
        split_pass[(triton.cdiv(L, R), N)](
            self.rows, tiles(self.highs, T), tiles(self.lows, T), self.shifts, *index_list, *whole,
            ambiguous, fine(D), L, S, D=D, R=R, T=T, num_warps=R // 16, num_stages=2,
        )  # fmt: skip
        self._compact(ambiguous, 2, 0, L, *index_list)
        exact_pass[(min(L, 64), N)](
            self.rows, self.slots, *index_list, *whole, L, S, D=D, T=64, enable_fp_fusion=False
        )
        return self.found
