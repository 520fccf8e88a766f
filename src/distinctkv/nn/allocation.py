"""Allocate slots for whole batches of keys: the rule of `distinctkv.rule` in torch, id for id."""

# B sequences, L tokens, H heads, D key size, S slots, N = B * H

from __future__ import annotations

from math import inf, isnan
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .. import kernels
from ..kernels.limits import LENGTHS
from . import leaders
from .mixer import check_mask, reads_without_sync
from .slot_state import SlotState

Impl = Literal["auto", "torch", "triton"]
Answer = tuple[Tensor, Tensor, Tensor]


class Allocation(NamedTuple):
    """What the rule decided for each token; all ids are slots of the token's own sequence and head.

    ``lead`` (B, L, H): the token opened a slot. ``assign``: its slot, its own if it leads, -1 for
    padding. ``opener`` (B, H, S): the token that opened a slot, -1 if none of this call did.
    ``n_slots``, ``overflow``, ``refused`` (B, H): slots now, tokens for which there was no room,
    tokens left out, whose keys were not rows of length one. ``mask`` (B, L): as given. ``before``
    (B, H): the tokens that its state had seen, None if it was given none. ``laid`` (N, L) twice:
    `streams` as the kernels left it.
    """

    lead: Tensor
    assign: Tensor
    opener: Tensor
    n_slots: Tensor
    overflow: Tensor
    refused: Tensor
    mask: Tensor | None = None
    before: Tensor | None = None
    laid: tuple[Tensor, Tensor] | None = None

    def check(self) -> Allocation:
        """Raise if a token was refused or found no room; this waits for the device."""
        if n := int(self.refused.sum()):
            raise ValueError(
                f"{n} keys are not finite rows of length one, or their values are not finite, or "
                "their tau is nan; use distinctkv.nn.functional.unit, and mask padding"
            )
        if n := int(self.overflow.sum()):
            raise ValueError(
                f"{n} novel tokens found all {self.opener.shape[-1]} slots taken and were merged "
                "into the nearest; raise capacity or tau"
            )
        return self

    def check_slots(self, state: SlotState | None) -> None:
        """Refuse slots that this was not decided with, as far as a look makes nobody wait."""
        if state is None:
            if self.before is not None:
                raise ValueError(
                    "this allocation was made with slots from before; give state=, as it was then"
                )
            return
        if self.opener.shape != state.counts.shape:
            raise ValueError(
                f"allocation is for slots {tuple(self.opener.shape)}, this state holds "
                f"{tuple(state.counts.shape)}; allocate with state=state"
            )
        if reads_without_sync(self.lead) and (n := int(self.astray(state).sum())):
            raise ValueError(
                f"{n} of {state.seen.numel()} streams of this state have taken in other tokens "
                "than the allocation knew; allocate with state=state, read, then write, once each"
            )

    def astray(self, state: SlotState) -> Tensor:
        """Streams (B, H) whose slots are not those this was decided with."""
        seen = 0 if self.before is None else self.before
        return (state.seen != seen) | (state.n_slots != self.n_slots - self.lead.sum(1))

    def streams(self) -> tuple[Tensor, Tensor]:
        """The slot of each token, and the slots that were open when it came: (N, L), 32 bits."""
        if self.laid is not None:
            return self.laid
        lead, slot = (x.transpose(1, 2).flatten(0, 1) for x in (self.lead, self.assign))
        opened = lead.sum(1).reshape_as(self.n_slots)
        before = (self.n_slots - opened).flatten()[:, None]
        return slot.int().contiguous(), (before + lead.cumsum(1) - lead.long()).int()


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
    none = length == 0
    return (wide / length.masked_fill(none, 1)).masked_fill(none, torch.nan).to(keys.dtype)


def allocate(
    keys: Tensor,
    tau: float | Tensor,
    *,
    state: SlotState | None = None,
    mask: Tensor | None = None,
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
    ``capacity`` bounds the slots (by default nothing can overflow). A novel token without room
    merges into the nearest slot and is counted. A key that is not finite or not of length one, or
    whose tau is nan, is left out like padding and counted. On the CPU either is an error at once;
    on a device or compiled, `Allocation.check` raises it, or `SlotState.check` for what was
    written, so that nothing synchronises.

    >>> keys = torch.eye(3)[[1, 0, 2, 0, 1, 2]].reshape(1, 6, 1, 3)
    >>> allocate(keys, tau=0.5).assign.flatten().tolist()
    [0, 1, 2, 1, 0, 2]
    """
    check_inputs(keys, tau, state, mask, chunk, capacity)
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {get_args(Impl)}, got {impl!r}")
    B, L, H, D = keys.shape
    bars = taus(tau, keys).flatten()  # (N,)
    slots = keys.new_empty(B, H, 0, D) if state is None else state.keys
    n_slots = bars.new_zeros(B, H, dtype=torch.int64) if state is None else state.n_slots
    held = (
        slots.flatten(0, 1),
        n_slots.flatten(),
        capacity or (L if state is None else slots.shape[2]),
    )
    if not torch.compiler.is_compiling() and kernels.chosen(impl, keys):
        found = _by_kernels(keys.detach(), bars, mask, *held)
    else:
        found = _by_torch(keys, bars, mask, *held, chunk, impl)
    if state is not None:
        found = found._replace(before=state.seen.clone())  # writes count on in the state
    return found.check() if reads_without_sync(keys) else found


def check_inputs(
    keys: Tensor,
    tau: float | Tensor,
    state: SlotState | None,
    mask: Tensor | None,
    chunk: int,
    capacity: int | None,
) -> None:
    """Refuse what has no meaning, by shapes and what lies on the CPU: nothing synchronises."""
    if keys.ndim != 4 or not keys.is_floating_point():
        raise ValueError(f"keys must be floats (B, L, H, D), got {keys.dtype} {tuple(keys.shape)}")
    if 0 in keys.shape:
        raise ValueError(f"there are no tokens to allocate in keys {tuple(keys.shape)}")
    B, _, H, D = keys.shape
    if isinstance(tau, Tensor) and tau.shape not in ((), (H,)):
        raise ValueError(f"tau must be one number or one per head ({H}), got {tuple(tau.shape)}")
    if _unknown(tau):
        raise ValueError(f"tau must be a number, got {tau}")
    check_mask(mask, keys)
    if chunk < 1 or (capacity is not None and capacity < 1):
        raise ValueError(f"chunk and capacity must be 1 or more, got {chunk} and {capacity}")
    if state is None:
        return
    if state.keys.shape[:2] != (B, H) or state.keys.shape[-1] != D:
        raise ValueError(
            f"keys are {B} x {H} streams of {D} numbers, this state holds "
            f"{tuple(state.keys.shape)}; use one state per layer and batch"
        )
    if state.keys.dtype != keys.dtype:
        raise ValueError(
            f"keys are {keys.dtype}, this state holds {state.keys.dtype}; cast the keys"
        )
    if capacity not in (None, state.keys.shape[2]):
        raise ValueError(f"this state holds {state.keys.shape[2]} slots, got capacity={capacity}")


def _unknown(tau: float | Tensor) -> bool:
    """Whether tau is seen to be nan."""
    if isinstance(tau, Tensor):
        return reads_without_sync(tau) and bool(tau.isnan().any())
    return isnan(tau)


def taus(tau: float | Tensor, keys: Tensor) -> Tensor:
    """Tau for each stream (B, H), in float64: the reference compares in it."""
    B, _, H, _ = keys.shape
    if isinstance(tau, Tensor):
        return tau.detach().to(keys.device, torch.float64).expand(B, H)
    return torch.full((B, H), tau, dtype=torch.float64, device=keys.device)


def _by_kernels(
    keys: Tensor, tau: Tensor, mask: Tensor | None, slots: Tensor, n_slots: Tensor, capacity: int
) -> Allocation:
    """What the kernels decide, without laying keys out anew for them."""
    from ..kernels.allocate import Room, Run, lay_out_keys

    B, _, H, _ = keys.shape
    with torch.autocast(keys.device.type, enabled=False):
        laid = lay_out_keys(keys, tau, mask)
        known, room = tau.nan_to_num(0.0, inf, -inf), Room(slots, n_slots, capacity)
        run = Run(laid.rows, known, laid.valid, room, laid=laid)
        lead, slot, opener = run.assigned()
    n_slots, lost, refused = (x.long().view(B, H) for x in (run.open, run.lost, laid.refused))
    lead, assign = deep(lead, H), deep(slot.long(), H)
    return Allocation(
        lead, assign, opener.view(B, H, -1), n_slots, lost, refused, mask, laid=(slot, run.visible)
    )


def _by_torch(
    keys: Tensor,
    tau: Tensor,
    mask: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: Impl,
) -> Allocation:
    """What torch decides, or in compiled code the operator."""
    B, _, H, _ = keys.shape
    rows = _streams(keys)
    length = torch.linalg.vector_norm(rows, dim=-1)  # (N, L)
    good = (length > LENGTHS[0]) & (length < LENGTHS[1]) & ~tau.isnan()[:, None]
    real = torch.ones_like(good) if mask is None else mask.repeat_interleave(H, 0)
    refused, valid = (real & ~good).sum(1), real & good
    # The operator is for compilers. Calling it would first import them, which takes seconds.
    decide = operator if torch.compiler.is_compiling() else run
    known = torch.where(tau.isnan(), 0, tau)
    lead, nearest, lost = decide(rows, known, valid, slots, n_slots, capacity, chunk, impl)
    own = n_slots[:, None] + lead.cumsum(1) - 1
    assign = torch.where(lead, own, nearest).masked_fill(~valid, -1)
    now, lost, refused = (x.reshape(B, H) for x in (n_slots + lead.sum(1), lost, refused))
    lead, assign = deep(lead, H), deep(assign, H)
    return Allocation(lead, assign, _openers(lead, assign, capacity), now, lost, refused, mask)


def run(
    rows: Tensor,
    tau: Tensor,
    valid: Tensor,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: str,
) -> Answer:
    """Lead, nearest slot and tokens without room of rows (N, L, D), whatever autocast says."""
    with torch.autocast(rows.device.type, enabled=False):
        if not kernels.chosen(impl, rows):
            return leaders.allocate(rows, tau, valid, slots, n_slots, capacity, chunk)
        from ..kernels.allocate import Room, Run

        found = Run(rows, tau, valid, Room(slots, n_slots, capacity))
        return found.leads(), found.nearest().long(), found.lost.long()


def _shapes(rows: Tensor, *_: object) -> Answer:
    """Empty tensors like those `run` returns, for a compiler."""
    N, L, _D = rows.shape
    whole = rows.new_empty(N, L, dtype=torch.int64)
    return whole.bool(), whole, rows.new_empty(N, dtype=torch.int64)


SCHEMA = (
    "(Tensor rows, Tensor tau, Tensor valid, Tensor slots, Tensor n_slots, int capacity, "
    "int chunk, str impl) -> (Tensor, Tensor, Tensor)"
)
operator = torch.library.custom_op("distinctkv::allocate", run, mutates_args=(), schema=SCHEMA)
operator.register_fake(_shapes)


def deep(x: Tensor, H: int) -> Tensor:
    """Streams (N, L) as (B, L, H)."""
    return x.reshape(-1, H, x.shape[1]).transpose(1, 2)


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
