"""Allocation: which tokens of a batch open a slot, and where the others go.

Keys are checked and laid out stream by stream; an engine decides (`engine`); the rest follows from
which tokens lead and which slot is nearest.
"""

# B batch, L tokens, H heads, D key size, S slots, N = B * H streams

from __future__ import annotations

from typing import NamedTuple, get_args

import torch
from torch import Tensor

from . import door, engine
from .engine import Impl
from .law import LENGTHS
from .state import SlotState


class Allocation(NamedTuple):
    """What the rule decided for each token; all ids are slots of the token's own stream.

    ``lead`` (B, L, H): the token opened a slot. ``assign``: its slot, its own if it leads, -1 for
    padding. ``nearest``: the nearest slot before it came, -1 if there was none. ``novelty``: half
    the squared distance to that slot, 2 if there was none, 0 for padding.
    ``opener`` (B, H, S): the token that opened a slot, -1 if none of this call did.
    ``n_slots``, ``overflow``, ``refused`` (B, H): slots now, tokens for which there was no room,
    keys that were not rows of length one. ``mask`` and ``sequence`` (B, L): as given.
    """

    lead: Tensor
    assign: Tensor
    nearest: Tensor
    novelty: Tensor
    opener: Tensor
    n_slots: Tensor
    overflow: Tensor
    refused: Tensor
    mask: Tensor | None
    sequence: Tensor | None

    def check(self) -> Allocation:
        """Raise if a key was refused or a token found no room; this waits for the device."""
        if n := int(self.refused.sum()):
            raise ValueError(
                f"{n} keys are not finite rows of length one, or their tau is nan; use "
                "distinctkv.nn.functional.unit, and mask padding"
            )
        if n := int(self.overflow.sum()):
            raise ValueError(
                f"{n} novel tokens found all {self.opener.shape[-1]} slots taken and were merged "
                "into the nearest; raise capacity or tau"
            )
        return self


def unit(keys: Tensor) -> Tensor:
    """Keys scaled to length one, worked out in float64; a key of zeros becomes nan.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    wide = keys.double()
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / length).to(keys.dtype)


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
    token opens a slot. No gradient passes.

    ``state`` holds slots from before and is not changed. ``mask`` (B, L) is true for real tokens.
    ``sequences`` are packed and start empty: ids (B, L), or cumulative lengths for B = 1.
    ``capacity`` bounds the slots of a stream (by default nothing can overflow). A novel token
    without room merges into the nearest slot and is counted. A key that is not finite or not of
    length one, or whose tau is nan, is left out like padding and counted. On the CPU either is an
    error at once; on a device or compiled, `Allocation.check` raises it, or `SlotState.check` for
    what was written, so that nothing need be waited for.

    >>> keys = torch.eye(3)[[1, 0, 2, 0, 1, 2]].reshape(1, 6, 1, 3)
    >>> allocate(keys, tau=0.5).assign.flatten().tolist()
    [0, 1, 2, 1, 0, 2]
    """
    door.check(keys, tau, state, mask, sequences, chunk, capacity)
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {get_args(Impl)}, got {impl!r}")
    B, L, H, D = keys.shape
    rows = keys.detach().to(torch.float64 if keys.dtype == torch.float64 else torch.float32)
    sequence, mask = door.packed(sequences, mask, L)
    real = torch.ones_like(rows[..., 0], dtype=torch.bool)
    if mask is not None:
        real = real & mask[..., None]
    length = torch.linalg.vecdot(rows, rows)
    bars = door.taus(tau, keys)  # (B, H)
    good = (length > LENGTHS[0] ** 2) & (length < LENGTHS[1] ** 2) & ~bars.isnan()[:, None]
    refused = (real & ~good).sum(1)
    valid = real & good
    rows = torch.where(valid[..., None], rows, 0)
    before = rows.new_empty(B, H, 0, D) if state is None else state.keys
    n_before = torch.zeros_like(refused) if state is None else state.n_slots
    S = capacity or (L if state is None else state.keys.shape[2])
    # The operator is for compilers. Calling it would first import them, which takes seconds.
    run = engine.operator if torch.compiler.is_compiling() else engine.run
    lead, nearest, novelty, overflow = run(
        _flat(rows),
        torch.where(bars.isnan(), 0, bars).flatten(),
        _flat(valid),
        None if sequence is None else sequence.repeat_interleave(H, 0),
        before.flatten(0, 1),
        n_before.flatten(),
        S,
        chunk,
        impl,
    )
    lead, nearest, novelty = (_deep(x, H) for x in (lead, nearest, novelty))
    ids = n_before[:, None] + lead.cumsum(1) - 1
    assign = torch.where(lead, ids, nearest).masked_fill(~valid, -1)
    found = Allocation(
        lead,
        assign,
        nearest,
        novelty,
        _openers(lead, ids, S),
        n_before + lead.sum(1),
        overflow.reshape(B, H),
        refused,
        mask,
        sequence,
    )
    return found.check() if _at_once(keys) else found


def _at_once(keys: Tensor) -> bool:
    """Whether a look at the numbers makes nobody wait."""
    return keys.is_cpu and not torch.compiler.is_compiling()


def _flat(x: Tensor) -> Tensor:
    """(B, L, H, ...) as streams (N, L, ...)."""
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def _deep(x: Tensor, H: int) -> Tensor:
    """Streams (N, L) as (B, L, H)."""
    return x.reshape(-1, H, x.shape[1]).transpose(1, 2)


def _openers(lead: Tensor, ids: Tensor, S: int) -> Tensor:
    """The token that opened each slot (B, H, S), or -1."""
    B, L, H = lead.shape
    place = torch.arange(L, device=lead.device).expand(B, H, L)
    slot = torch.where(lead, ids, S).transpose(1, 2)
    return torch.full((B, H, S + 1), -1, device=lead.device).scatter(2, slot, place)[..., :S]
