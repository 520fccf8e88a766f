"""The leader algorithm by chunks in torch, with every close decision made by the reference."""

# N sequences (batch and head), L tokens, C tokens of a chunk, S slots, U slots in use, D key size,
# P tokens in doubt

from __future__ import annotations

from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels.limits import FURTHEST


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of rows as `distinctkv.rule.distances`: float64, summed left to right.

    >>> squared(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([25.], dtype=torch.float64)
    """
    gaps = a.double() - b.double()
    squares = gaps * gaps
    if squares.device.type == "cpu":
        return squares.cumsum(-1)[..., -1]
    total = squares[..., 0]  # a scan on other devices adds in another order
    for d in range(1, squares.shape[-1]):
        total = total + squares[..., d]
    return total


def halves(rows: Tensor) -> Tensor:
    """Half of each row's squared length."""
    lengths: Tensor = torch.linalg.vecdot(rows, rows)
    return lengths / 2


def error(width: int, dtype: torch.dtype) -> float:
    """What ``|k|^2/2 - x.k + |x|^2/2`` may be off by, for rows no longer than 1.1.

    A sum of n terms is off by at most n roundings of the sum of their sizes. That is 1.1^2 for the
    product and half of it for each length, one of which goes through the product's sum once more.
    """
    return 3.25 * (width + 16) * torch.finfo(dtype).eps / 2


def product_type(rows: Tensor) -> torch.dtype:
    """The type in which a product keeps its promise of accuracy.

    Where the hardware may round float32 factors (TF32, bfloat16) the product is taken in float64.
    """
    try:
        full = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # settings of two kinds were mixed, and torch will not say which holds
        full = False
    return rows.dtype if full else torch.float64


class Slots(NamedTuple):
    """Slot rows (N, S, D), half their squared lengths (N, S), and how many (N,)."""

    rows: Tensor
    halves: Tensor
    n: Tensor


class Chunk(NamedTuple):
    """Rows (N, C, D), half their squared lengths, and whether they are real tokens."""

    rows: Tensor
    halves: Tensor
    valid: Tensor


def allocate(
    rows: Tensor,
    tau: Tensor,
    valid: Tensor,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Lead (N, L), nearest slot or -1 (N, L), tokens that found no room (N,).

    ``rows`` (N, L, D) have length one, or are anything where not ``valid``; ``tau`` (N,) is
    float64.
    ``slots`` (N, S, D) holds what was there before, ``n_slots`` (N,) how much of it is filled.
    """
    # Novelty is at most 2. Above all distances, yet below the inf that marks what is not visible.
    tau = tau.masked_fill(tau >= FURTHEST, 4 * FURTHEST)
    L = rows.shape[1]
    rows = torch.where(valid[..., None], rows, 0)
    whole = Chunk(rows, halves(rows.to(product_type(rows))), valid)
    memory = _memory(whole, slots, n_slots, capacity, copy=chunk < L)
    parts = []
    overflow = torch.zeros_like(n_slots)
    for start in range(0, L, chunk):
        now = Chunk._make(x[:, start : start + chunk] for x in whole)
        lead, nearest, novelty = _decide(now, tau, memory, capacity)
        overflow += (now.valid & ~lead & (novelty > tau[:, None])).sum(1)
        parts.append((lead, nearest))
        if start + chunk < L:
            memory = _append(memory, now, lead)
    lead, nearest = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    return lead, nearest, overflow


def leaders(candidate: Tensor, within: Tensor) -> Tensor:
    """Candidates (N, C) that no earlier leader is ``within`` (N, C, C) reach of.

    >>> chain = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.bool)
    >>> leaders(torch.ones(1, 3, dtype=torch.bool), chain[None])
    tensor([[ True, False,  True]])
    """
    graph = within.float()
    lead, before = candidate, torch.zeros_like(candidate)
    while not torch.equal(lead, before):
        covered = (graph @ lead[..., None].float())[..., 0] > 0
        lead, before = candidate & ~covered, lead
    return lead


def _memory(whole: Chunk, slots: Tensor, n_slots: Tensor, capacity: int, *, copy: bool) -> Slots:
    """The slots that are there, with room behind them if they are to be added to."""
    N, L, D = whole.rows.shape
    before = int(n_slots.max()) if slots.shape[1] else 0
    held = slots[:, :before].to(whole.rows.dtype)
    lengths = halves(held.to(whole.halves.dtype))
    if copy:
        room = min(capacity, before + L) - before
        held = torch.cat([held, held.new_zeros(N, room, D)], 1)
        lengths = torch.cat([lengths, lengths.new_zeros(N, room)], 1)
    return Slots(held, lengths, n_slots)


def _append(memory: Slots, now: Chunk, lead: Tensor) -> Slots:
    """The slots with those of a chunk behind them; rows are written in place."""
    stream, token = lead.nonzero(as_tuple=True)
    slot = (memory.n[:, None] + lead.cumsum(1) - 1)[stream, token]
    memory.rows[stream, slot] = now.rows[stream, token]
    memory.halves[stream, slot] = now.halves[stream, token]
    return memory._replace(n=memory.n + lead.sum(1))


def _decide(now: Chunk, tau: Tensor, memory: Slots, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which tokens of a chunk open a slot, the nearest slot of each, and its novelty (float64)."""
    columns, scores = _old(now, memory)
    ids = torch.arange(columns.shape[1], device=tau.device).expand(len(tau), -1)
    bar = tau[:, None] - now.halves.double()
    lead = now.valid & _novel(now, scores, columns, tau, bar)
    if lead.any():
        inside = _inside(now)
        lead = leaders(lead, _within(now, inside, tau, bar))
        opened = memory.n[:, None] + lead.cumsum(1) - 1
        lead &= opened < capacity
        scores = torch.cat([scores, inside.masked_fill_(~lead[:, None], inf)], 2)
        columns, ids = torch.cat([columns, now.rows], 1), torch.cat([ids, opened], 1)
    if not columns.shape[1]:  # nothing but padding so far
        return lead, torch.full_like(lead, -1, dtype=torch.int64), torch.zeros_like(bar)
    column, found = _nearest(now, scores, columns)
    near = columns.gather(1, column[..., None].expand_as(now.rows))
    novelty = torch.where(found, squared(now.rows, near) / 2, FURTHEST).clamp_(max=FURTHEST)
    nearest = torch.where(found, ids.gather(1, column), -1)
    return lead, nearest, novelty.masked_fill_(~now.valid, 0)


def _scores(now: Chunk, rows: Tensor, lengths: Tensor) -> Tensor:
    """Half the squared distance less the token's own half, (N, C, columns)."""
    wide = lengths.dtype
    return torch.baddbmm(lengths[:, None], now.rows.to(wide), rows.to(wide).mT, alpha=-1)


def _old(now: Chunk, memory: Slots) -> tuple[Tensor, Tensor]:
    """Rows (N, U, D) of the slots from before the chunk, and the scores of its tokens with them."""
    least, most = (int(n) for n in memory.n.aminmax())
    scores = _scores(now, memory.rows[:, :most], memory.halves[:, :most])
    free = torch.arange(least, most, device=scores.device) >= memory.n[:, None]
    scores[:, :, least:].masked_fill_(free[:, None], inf)
    return memory.rows[:, :most], scores


def _inside(now: Chunk) -> Tensor:
    """Scores of the tokens of a chunk with those before them in it (N, C, C)."""
    scores = _scores(now, now.rows, now.halves)
    place = torch.arange(scores.shape[1], device=scores.device)
    return scores.masked_fill_((place >= place[:, None]) | ~now.valid[:, None], inf)


def _novel(now: Chunk, scores: Tensor, columns: Tensor, tau: Tensor, bar: Tensor) -> Tensor:
    """Which tokens (N, C) no column is within tau of; they score above the ``bar`` (N, C)."""
    if not scores.shape[2]:
        return torch.ones_like(now.valid)
    off = error(now.rows.shape[2], scores.dtype)
    gap = scores.amin(-1).double() - bar
    novel = gap > 0
    stream, token = ((gap.abs() <= off) & now.valid).nonzero(as_tuple=True)
    if len(stream):
        maybe = scores[stream, token] <= (bar[stream, token] + off)[:, None]
        doubt, column = maybe.nonzero(as_tuple=True)
        s, t = stream[doubt], token[doubt]
        near = squared(now.rows[s, t], columns[s, column]) / 2 <= tau[s]
        novel[stream, token] = True
        novel[s[near], t[near]] = False
    return novel


def _within(now: Chunk, scores: Tensor, tau: Tensor, bar: Tensor) -> Tensor:
    """Which tokens of a chunk lie within tau of a token (N, C, C)."""
    off = error(now.rows.shape[2], scores.dtype)
    sure = scores <= (bar - off)[..., None].to(scores.dtype)
    maybe = scores <= (bar + off)[..., None].to(scores.dtype)
    stream, token, other = (maybe ^ sure).nonzero(as_tuple=True)
    if len(stream):
        half = squared(now.rows[stream, token], now.rows[stream, other]) / 2
        sure[stream, token, other] = half <= tau[stream]
    return sure


def _nearest(now: Chunk, scores: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest column of each token (N, C), the oldest of equals, and whether there is one."""
    off = error(now.rows.shape[2], scores.dtype)
    best = scores.amin(-1)
    found = (best < inf) & now.valid
    # How many columns are close to the best, and the sum of their numbers: if one is, its number.
    close = torch.le(scores, (best + 2 * off)[..., None], out=torch.empty_like(scores))
    number = torch.arange(scores.shape[2], device=scores.device, dtype=scores.dtype)
    count, total = (close @ torch.stack([torch.ones_like(number), number], -1)).unbind(-1)
    column = total.long()
    stream, token = ((count > 1) & found).nonzero(as_tuple=True)
    if len(stream):
        tied, other = close[stream, token].nonzero(as_tuple=True)
        s, t = stream[tied], token[tied]
        gaps = scores.new_full((len(stream), scores.shape[2]), inf, dtype=torch.float64)
        gaps[tied, other] = squared(now.rows[s, t], columns[s, other])
        least = gaps == gaps.amin(-1, keepdim=True)
        column[stream, token] = least.to(torch.uint8).argmax(-1)
    return column.masked_fill_(~found, 0), found
