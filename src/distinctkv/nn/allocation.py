"""Allocation: which tokens of a batch open a slot, and where the others go.

Keys are checked and laid out stream by stream; an engine decides (`engine`); the rest follows from
which tokens lead and which slot is nearest.
"""

# B batch, L tokens, H heads, D key size, S slots, N = B * H streams

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from . import door, engine
from .allocated import Allocation as Allocation
from .allocated import Later, deep
from .engine import Impl
from .law import LENGTHS
from .state import SlotState

if TYPE_CHECKING:
    from .kernels.allocating import Run
    from .kernels.laying import Laid


def unit(keys: Tensor) -> Tensor:
    """Keys scaled to length one, worked out in float64.

    A key of zeros becomes nan, so that nobody takes it for a key, and passes no gradient.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    if not keys.is_floating_point():
        raise ValueError(f"keys must be floats, got {keys.dtype}; keys.float() are")
    wide = keys.double()
    if keys.dtype == torch.float64:  # squares may leave its range: bring rows near one first
        size = wide.detach().abs().amax(-1, keepdim=True)
        power = torch.frexp(size).exponent.clamp(-1000, 1000)
        wide = wide * torch.ldexp(torch.ones_like(size), -power)
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    if door.least(length) > 0:
        return (wide / length).to(keys.dtype)
    none = length == 0
    return (wide / length.masked_fill(none, 1)).masked_fill(none, torch.nan).to(keys.dtype)


def allocate(
    keys: Tensor,
    tau: float | Tensor,
    *,
    state: SlotState | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    chunk: int = 128,
    capacity: int | None = None,
    impl: Impl = "auto",
) -> Allocation:
    """Run the allocation rule of the paper (eq. 2) over keys (B, L, H, D), each head on its own.

    The slots are those of `distinctkv.rule.Rule` with first-occurrence keys, id for id, whatever
    the ``chunk``. ``keys`` are rows of length one (`unit`), and the rule sees them as float32, or
    float64 if they are. ``tau`` is a number, a 0-dim tensor or one number per head; below 0 every
    token opens a slot (layers take 0 to 2, as `Concentration` does). No gradient passes.

    ``state`` holds slots from before and is not changed. ``mask`` (B, L) is true for real tokens.
    ``sequences`` are packed and start empty: ids (B, L), each a run that does not come back, or
    cumulative lengths for B = 1, behind the last of which tokens are padding. Slots are numbered
    on from one sequence of a row to the next.
    ``capacity`` bounds the slots of a stream (by default nothing can overflow). A novel token
    without room merges into the nearest slot and is counted. A key that is not finite or not of
    length one, or whose tau is nan, is left out like padding and counted. On the CPU either is an
    error at once; on a device or compiled, `Allocation.check` raises it, or `SlotState.check` for
    what was written, so that nothing need be waited for.

    >>> keys = torch.eye(3)[[1, 0, 2, 0, 1, 2]].reshape(1, 6, 1, 3)
    >>> allocate(keys, tau=0.5).assign.flatten().tolist()
    [0, 1, 2, 1, 0, 2]
    """
    door.check_inputs(keys, tau, state, mask, sequences, chunk, capacity)
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {get_args(Impl)}, got {impl!r}")
    B, L, H, D = keys.shape
    sequence, mask = door.packed(sequences, mask, L)
    bars = door.taus(tau, keys).flatten()  # (N,)
    before = keys.new_empty(B, H, 0, D) if state is None else state.keys
    n_before = bars.new_zeros(B, H, dtype=torch.int64) if state is None else state.n_slots
    S = capacity or (L if state is None else state.keys.shape[2])
    held = (before.flatten(0, 1), n_before.flatten(), S)
    run = None
    if sequence is None and not torch.compiler.is_compiling():
        run = engine.begin(keys.detach(), bars, mask, *held, impl)
    seen = None if state is None else state.seen.clone()  # writes count on in the state
    found = (
        _by_torch(keys, bars, mask, sequence, seen, n_before, *held, chunk, impl)
        if run is None or run.laid is None
        else _by_kernels(run, run.laid, mask, seen, n_before)
    )
    return found.check() if door.readable(keys) else found


def _by_kernels(
    run: Run, laid: Laid, mask: Tensor | None, seen: Tensor | None, n_before: Tensor
) -> Later:
    """What the kernels have decided."""
    lead, slot, opener = run.assigned()
    B, H = n_before.shape
    lead, assign = deep(lead, H), deep(slot.long(), H)
    counts = (x.long().view(B, H) for x in (run.open, run.lost, laid.refused))
    # Nobody sees the slots in the places of nearest and novelty.
    fields = (lead, assign, assign, assign, opener.view(B, H, -1), *counts, mask, None, seen)
    return Later.of(run, slot, *fields)


def _by_torch(
    keys: Tensor,
    bars: Tensor,
    mask: Tensor | None,
    sequence: Tensor | None,
    seen: Tensor | None,
    n_before: Tensor,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: Impl,
) -> Allocation:
    """What an engine decides of streams in order."""
    B, H = n_before.shape
    rows = _streams(keys)
    length = torch.linalg.vector_norm(rows, dim=-1)  # (N, L)
    good = (length > LENGTHS[0]) & (length < LENGTHS[1]) & ~bars.isnan()[:, None]
    real = torch.ones_like(good) if mask is None else mask.repeat_interleave(H, 0)
    refused, valid = (real & ~good).sum(1), real & good
    told = (rows, torch.where(bars.isnan(), 0, bars), valid)
    ids = None if sequence is None else sequence.repeat_interleave(H, 0)
    # The operator is for compilers. Calling it would first import them, which takes seconds.
    decide = engine.operator if torch.compiler.is_compiling() else engine.run
    lead, nearest, novelty, overflow = decide(*told, ids, slots, n_slots, capacity, chunk, impl)
    own = n_slots[:, None] + lead.cumsum(1) - 1
    assign = torch.where(lead, own, nearest).masked_fill(~valid, -1)
    lead, assign, nearest, novelty = (deep(x, H) for x in (lead, assign, nearest, novelty))
    opener = _openers(lead, assign, capacity)
    counts = (n_before + lead.sum(1), overflow.reshape(B, H), refused.reshape(B, H))
    return Allocation(lead, assign, nearest, novelty, opener, *counts, mask, sequence, seen)


def _streams(keys: Tensor) -> Tensor:
    """Keys (B, L, H, D) as streams (N, L, D), in 32 bits or more."""
    wide = keys.detach().to(torch.promote_types(keys.dtype, torch.float32))
    return wide.transpose(1, 2).flatten(0, 1).contiguous()


def _openers(lead: Tensor, assign: Tensor, S: int) -> Tensor:
    """The token that opened each slot (B, H, S), or -1."""
    B, L, H = lead.shape
    place = torch.arange(L, device=lead.device).expand(B, H, L)
    slot = torch.where(lead, assign, S).transpose(1, 2)
    return torch.full((B, H, S + 1), -1, device=lead.device).scatter(2, slot, place)[..., :S]
