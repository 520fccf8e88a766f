"""Write tokens to slots: many at once, or one with its read."""

# B sequences, H heads, G queries per head, L tokens, S slots, D key size, C value size

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from .. import kernels
from .allocation import Allocation, Impl, allocate, check_inputs, taus
from .mixer import reads_without_sync
from .slot_attention import Mode, Value, check, check_tokens, read
from .slot_state import SlotState


@torch.no_grad()
def write(
    state: SlotState,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    *,
    value: Value = "mean",
) -> SlotState:
    """Put tokens (B, L, H, D) where ``allocation``, made with this ``state``, said; in place.

    On the CPU it is an error, and nothing is written, if the slots have changed since or a value
    is not finite. Elsewhere such tokens are left out and counted (`SlotState.check`); one that
    opened a slot leaves it without a token, and nobody reads it.
    """
    check("mass", value, k, k, v)
    check_tokens(k, allocation)
    allocation.check_slots(state)
    fine = finite(v)
    if reads_without_sync(v) and (n := int((~fine & (allocation.assign >= 0)).sum())):
        raise ValueError(
            f"{n} values are not finite, and a slot would never lose them again; mask "
            "their tokens when you allocate"
        )
    return write_many(state, k, v, allocation, value, fine)


def finite(rows: Tensor) -> Tensor:
    """Which rows (B, L, H, any) are finite."""
    return rows.detach().abs().amax(-1) < inf


@torch.no_grad()
def write_many(
    state: SlotState,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    value: Value,
    fine: Tensor,
) -> SlotState:
    """What `write` does with tokens of which those that are ``fine`` (B, L, H) are taken in."""
    strays = allocation.astray(state)
    slot, fine = allocation.assign.transpose(1, 2), fine.transpose(1, 2)
    real, slot = (slot >= 0) & ~strays[..., None], slot.clamp(min=0)
    fresh, opener = allocation.opener >= 0, allocation.opener.clamp(min=0)
    fresh, fine = fresh & ~strays[..., None], fine & real
    val = torch.where(fine[..., None], v.transpose(1, 2).to(state.values.dtype), 0)
    _put(state.keys, fresh, k.transpose(1, 2), opener)
    state.counts.masked_fill_(fresh, 0).scatter_add_(2, slot, fine.to(state.counts.dtype))
    if value == "mean":
        state.values.masked_fill_(fresh[..., None], 0)
        state.values.scatter_add_(2, slot[..., None].expand_as(val), val)
    elif value == "first":
        _put(state.values, fresh, val, opener)
    else:
        place = torch.where(fine, torch.arange(val.shape[2], device=v.device), -1)
        latest = torch.full_like(opener, -1).scatter_reduce_(2, slot, place, "amax")
        _put(state.values, latest >= 0, val, latest.clamp(min=0))
    left_out = (allocation.assign >= 0).sum(1) - fine.sum(-1)
    state.n_slots.copy_(torch.where(strays, state.n_slots, allocation.n_slots))
    state.overflow.add_(allocation.overflow)
    state.refused.add_(allocation.refused + left_out)
    state.seen.add_(fine.sum(-1))
    return state


def _put(buffer: Tensor, where: Tensor, rows: Tensor, source: Tensor) -> None:
    """Overwrite slots (B, H, S) of a buffer with the rows of these tokens."""
    new = rows.gather(2, source[..., None].expand(-1, -1, -1, rows.shape[-1]))
    buffer.copy_(torch.where(where[..., None], new.to(buffer.dtype), buffer))


@torch.no_grad()
def write_one(state: SlotState, k: Tensor, v: Tensor, allocation: Allocation, value: Value) -> None:
    """Put one token where ``allocation`` said, touching one slot of each stream."""
    slot = allocation.assign.transpose(1, 2)  # (B, H, 1)
    real, slot = slot >= 0, slot.clamp(min=0)
    lead = allocation.lead.transpose(1, 2)
    val = v.transpose(1, 2).to(state.values.dtype)
    _set(state.keys, slot, lead, k.transpose(1, 2))
    _set(state.counts, slot, real, 1 + _old(state.counts, slot, lead))
    if value == "mean":
        _set(state.values, slot, real, val + _old(state.values, slot, lead))
    else:
        _set(state.values, slot, lead if value == "first" else real, val)
    state.n_slots.copy_(allocation.n_slots)
    state.overflow.add_(allocation.overflow)
    state.refused.add_(allocation.refused)
    state.seen.add_((allocation.assign >= 0).sum(1))


def _wide(slot: Tensor, buffer: Tensor) -> Tensor:
    return slot if buffer.ndim == 3 else slot[..., None].expand(-1, -1, -1, buffer.shape[-1])


def _old(buffer: Tensor, slot: Tensor, lead: Tensor) -> Tensor:
    """What the slot holds, 0 if it is only now opened."""
    old = buffer.gather(2, _wide(slot, buffer))
    return torch.where(_wide(lead, buffer), 0, old)


def _set(buffer: Tensor, slot: Tensor, where: Tensor, new: Tensor) -> None:
    index = _wide(slot, buffer)
    old = buffer.gather(2, index)
    buffer.scatter_(2, index, torch.where(_wide(where, buffer), new.to(buffer.dtype), old))


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState,
    tau: float | Tensor,
    *,
    mode: Mode = "mass",
    value: Value = "mean",
    scale: float | None = None,
    mask: Tensor | None = None,
    impl: Impl = "auto",
) -> tuple[Tensor, SlotState]:
    """Write L more tokens (B, L, H, D) into the slots and read them: what `read` gives for a whole.

    With one token this costs one pass over the slots. The buffers of ``state`` are written in place
    and given back; `SlotState.clone` before, to keep what was. No gradient passes to the slots.
    A token whose value is not finite is refused as one whose key is not (`allocate`).

    >>> from .allocation import unit
    >>> k, v = unit(torch.randn(1, 5, 2, 4)), torch.randn(1, 5, 2, 3)
    >>> state = SlotState.empty(k, v, capacity=8)
    >>> tokens = zip(k.split(1, 1), v.split(1, 1))
    >>> out = torch.cat([step(key, key, val, state, 0.3)[0] for key, val in tokens], 1)
    >>> torch.allclose(out, read(k, k, v, allocate(k, 0.3)), atol=1e-5)
    True
    """
    check(mode, value, q, k, v, scale)
    if k.shape[1] == 1 and _fused(q, k, v, state, impl):
        from ..kernels import slot_decode

        check_inputs(k, tau, state, mask, 1, None)
        out = slot_decode.step(
            q, k, v, state, taus(tau, k),
            mode=mode, value=value, scale=scale, mask=mask,
        )  # fmt: skip
        return out, state
    fine = finite(v)
    if not reads_without_sync(v) or not bool(fine.all()):
        k = torch.where(fine[..., None], k, torch.nan)
    found = allocate(k, tau, state=state, mask=mask, impl=impl)
    if k.shape[1] == 1:
        write_one(state, k, v, found, value)
        return read_one(q, state, mode, value, scale, found).to(v.dtype), state
    out = read(q, k, v, found, mode=mode, value=value, scale=scale, state=state)
    return out, write_many(state, k, v, found, value, fine)


def _fused(q: Tensor, k: Tensor, v: Tensor, state: SlotState, impl: Impl) -> bool:
    """Whether one kernel writes and reads: on CUDA, without gradients, for sizes that it has."""
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if wanted or torch.compiler.is_compiling() or state.values.dtype != torch.float32:
        return False
    return kernels.chosen(impl, k, v)


def read_one(
    q: Tensor,
    state: SlotState,
    mode: Mode,
    value: Value,
    scale: float | None,
    allocation: Allocation,
) -> Tensor:
    """Attention of one query for each head and group over the slots (B, 1, H * G, C)."""
    with torch.autocast(q.device.type, enabled=False):
        slots, used = _filled(state)
        if torch.is_grad_enabled() and q.requires_grad:
            slots = slots.clone()  # later steps write to the buffers, and the gradient needs these
        wide = torch.promote_types(slots.values.dtype, torch.float32)
        keys, values, counts = (x.to(wide) for x in slots[:3])
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        B, H = used.shape[:2]
        query = (q[:, 0].to(keys.dtype) * scale).reshape(B, H, -1, q.shape[-1])
        logits = query @ keys.mT
        if mode == "mass":
            logits = logits + counts.log()[:, :, None]
        logits = logits.masked_fill(~used[:, :, None], -inf)
        share = logits.softmax(-1)
        if value == "mean":
            share = share / counts.clamp(min=1)[:, :, None]
        share = torch.where(used[:, :, None], share, 0)
        out = share @ torch.where(used[..., None], values, 0)
        blind = (allocation.assign < 0).transpose(1, 2)[..., None] | (logits == -inf).all(-1, True)
        return out.masked_fill(blind, 0).reshape(B, 1, -1, out.shape[-1])


def _filled(state: SlotState) -> tuple[SlotState, Tensor]:
    """The slots to look at, and which of them are filled; on the CPU the empty ones are cut off."""
    if state.keys.is_cpu and not torch.compiler.is_compiling():
        most = max(1, int(state.n_slots.max()))
        state = SlotState._make((*(x[:, :, :most] for x in state[:3]), *state[3:]))
    return state, state.used
