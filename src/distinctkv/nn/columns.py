"""Attention over slots as attention over tokens: which of them speak for their slot, how loud.

A column is a token, or a slot from before. It carries its slot's key, and the bias on its logit is
the log of the weight with which it speaks for the slot at the time of the query.
"""

# B batch, L tokens, H heads, D key size, C value size, T columns: slots from before, then tokens,
# Q queries of one block, G queries per head

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as fn

from .allocation import Allocation
from .state import SlotState

Mode = Literal["mass", "distinct"]
Value = Literal["mean", "first", "last"]
QUERIES = 512  # queries whose biases are held at once
FAINT = -80.0  # the least log weight of a token that counts at all: e ** -90 has few bits left


class Columns(NamedTuple):
    """All that can be attended to, each (B, H, T, ...) but ``place`` (T,), -1 for a slot."""

    keys: Tensor
    values: Tensor
    slot: Tensor
    real: Tensor
    first: Tensor  # whether it opened its slot
    gate: Tensor  # log weight: its own, or under distinct that of its slot
    size: Tensor  # tokens it stands for
    place: Tensor

    @classmethod
    def of(
        cls,
        key: Tensor,
        val: Tensor,
        allocation: Allocation,
        mode: Mode,
        value: Value,
        log_gate: Tensor | None,
        state: SlotState | None,
    ) -> Columns:
        """The slots of ``state``, then the tokens, in float32 or better."""
        wide = torch.promote_types(key.dtype, torch.float32)
        slot = allocation.assign.transpose(1, 2)
        real, slot = slot >= 0, slot.clamp(min=0)
        gate = torch.zeros_like(key[..., 0], dtype=wide)
        if log_gate is not None:
            gate = torch.where(real, log_gate.transpose(1, 2).to(wide), 0)
        if mode == "distinct":
            gate = _of_openers(gate, slot, allocation.opener, state)
        # What padding holds must not matter, not even nan.
        key, val = (torch.where(real[..., None], x.to(wide), 0) for x in (key, val))
        place = torch.arange(key.shape[2], device=key.device)
        first = allocation.lead.transpose(1, 2)
        tokens = cls(key, val, slot, real, first, gate, torch.ones_like(gate), place)
        if state is None:
            return tokens
        slots = _of_state(state, wide, mode, value)
        pairs = zip(slots, tokens, strict=True)
        return cls._make(torch.cat(pair, 0 if pair[0].ndim == 1 else 2) for pair in pairs)

    def until(self, stop: int) -> Columns:
        """The first ``stop`` columns."""
        return Columns._make(x[:stop] if x.ndim == 1 else x[:, :, :stop] for x in self)


def _of_openers(gate: Tensor, slot: Tensor, opener: Tensor, state: SlotState | None) -> Tensor:
    """Log weight of each token's slot (B, H, L): that of the token that opened it."""
    source = opener.gather(2, slot)
    own = gate.gather(2, source.clamp(min=0))
    if state is None:
        return own
    return torch.where(source < 0, state.weights.to(gate.dtype).log().gather(2, slot), own)


def _of_state(state: SlotState, wide: torch.dtype, mode: Mode, value: Value) -> Columns:
    """Slots as columns that stand for all the tokens in them; unused ones hold 0."""
    used = state.used
    keys, values = (torch.where(used[..., None], x.to(wide), 0) for x in state[:2])
    weight, size = (torch.where(used, x.to(wide), 1) for x in state[2:4])
    if value == "mean":
        values = values / positive(weight if mode == "mass" else size)[..., None]
    slot = torch.arange(state.capacity, device=keys.device)
    place = torch.full_like(slot, -1)
    return Columns(keys, values, slot.expand_as(used), used, used, weight.log(), size, place)


def audible(log_gate: Tensor | None) -> Tensor | None:
    """Log weights that a slot can hold in 32 bits: -inf, or no less than ``FAINT``.

    >>> audible(torch.tensor([0.0, -200.0, -inf]))
    tensor([  0., -80., -inf])
    """
    if log_gate is None:
        return None
    return torch.where(log_gate == -inf, log_gate, log_gate.clamp(min=FAINT))


def positive(weight: Tensor) -> Tensor:
    """A weight one can divide by."""
    return weight.clamp(min=torch.finfo(weight.dtype).tiny)


def attend(
    query: Tensor,
    columns: Columns,
    sequence: Tensor | None,
    mode: Mode,
    value: Value,
    scale: float,
) -> Tensor:
    """Attention (B, H * G, L, C) in blocks of queries, each with the bias of its columns."""
    L, H = query.shape[2], columns.slot.shape[1]
    before = columns.slot.shape[2] - L
    group = query.shape[1] // H
    real = columns.real[:, :, before:, None].repeat_interleave(group, 1)
    query = torch.where(real, query.to(columns.keys.dtype), 0)
    last = _last(columns) if value == "last" else None
    parts = []
    for start in range(0, L, QUERIES):
        stop = min(start + QUERIES, L)
        seen = columns.until(before + stop)
        bias = _bias(seen, before + start, mode, value, last)
        if sequence is not None:
            ids = sequence[:, None, :stop]
            bias = bias.masked_fill(ids[:, :, start:, None] != ids[:, :, None], -inf)
        blind = ~real[:, :, start:stop] | (bias == -inf).all(-1, True).repeat_interleave(group, 1)
        bias = bias.repeat_interleave(group, 1).masked_fill(blind, 0)
        key, val = (x.repeat_interleave(group, 1) for x in (seen.keys, seen.values))
        out = fn.scaled_dot_product_attention(
            query[:, :, start:stop], key, val, attn_mask=bias, scale=scale
        )
        parts.append(out.masked_fill(blind, 0))
    return torch.cat(parts, 2)


def _last(columns: Columns) -> Tensor:
    """The time at which a column stops being the last of its slot (B, H, T), if ever."""
    never = columns.slot.shape[-1] + 1
    rank = torch.where(columns.real, columns.slot, never)
    order = rank.sort(dim=-1, stable=True).indices
    rank, place = rank.gather(-1, order), columns.place.expand_as(rank).gather(-1, order)
    after = torch.where(rank[..., 1:] == rank[..., :-1], place[..., 1:], never)
    return torch.empty_like(order).scatter_(-1, order, fn.pad(after, (0, 1), value=never))


def _bias(columns: Columns, start: int, mode: Mode, value: Value, last: Tensor | None) -> Tensor:
    """Log weight of each column for the queries from ``start`` on, -inf if not visible."""
    time = columns.place[start:, None]
    visible = columns.real[:, :, None] & (columns.place <= time)
    if value == "first":
        visible = visible & columns.first[:, :, None]
    elif last is not None:
        visible = visible & (last[:, :, None, : len(columns.place)] > time)
    bias = columns.gate[:, :, None]
    if mode == "mass" and value != "mean":
        bias = _log_total(columns, columns.gate.exp(), start)
    elif mode == "distinct" and value == "mean":
        share = columns.size.log()[:, :, None] - _log_total(columns, columns.size, start)
        bias = bias + torch.where(visible, share, 0)
    return torch.where(visible, bias, -inf)


def _log_total(columns: Columns, weight: Tensor, start: int) -> Tensor:
    """Log weight of each column's slot at the time of each query (B, H, Q, T)."""
    slot, weight = columns.slot, torch.where(columns.real, weight, 0)
    (B, H, T), Q = slot.shape, slot.shape[2] - start
    n_slots = T
    if slot.is_cpu and not torch.compiler.is_compiling():
        n_slots = int(slot.max()) + 1
    before = weight.new_zeros(B, H, n_slots).scatter_add(2, slot[..., :start], weight[..., :start])
    alone = weight.new_zeros(B, H, Q, n_slots)
    alone = alone.scatter(3, slot[:, :, start:, None], weight[:, :, start:, None])
    total = before[:, :, None] + alone.cumsum(2)
    table = torch.where(total > 0, positive(total).log(), -inf)
    return table.gather(3, slot[:, :, None].expand(-1, -1, Q, -1))
