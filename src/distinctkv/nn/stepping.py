"""Decoding: write some tokens into the slots, and read them back."""

# B batch, L tokens, H heads, S slots, D key size, C value size, G queries per head

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import inf

import torch
from torch import Tensor

from .door import check_inputs, readable, taus
from .allocation import Allocation, allocate
from .columns import Mode, Value, audible, positive
from .engine import Impl
from .reading import check, read
from .state import SlotState
from .writing import finite, write_many, write_one


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState,
    tau: float | Tensor,
    *,
    mode: Mode = "mass",
    value: Value = "mean",
    scale: float | Tensor | None = None,
    log_gate: Tensor | None = None,
    mask: Tensor | None = None,
    impl: Impl = "auto",
    begin: Callable[[], object] | None = None,
) -> tuple[Tensor, SlotState]:
    """Write L more tokens (B, L, H, D) into the slots and read them: what `read` gives for a whole.

    With one token this costs one pass over the slots. The buffers of ``state`` are written in place
    and given back; `SlotState.clone` before, to keep what was. No gradient passes to the slots.
    A token whose value is not finite is refused as one whose key is not (`allocate`). Just before
    the first write, when nothing is refused any more, ``begin`` is called.

    >>> from .allocation import unit
    >>> k, v = unit(torch.randn(1, 5, 2, 4)), torch.randn(1, 5, 2, 3)
    >>> state = SlotState.empty(k, v, capacity=8)
    >>> tokens = zip(k.split(1, 1), v.split(1, 1))
    >>> out = torch.cat([step(key, key, val, state, 0.3)[0] for key, val in tokens], 1)
    >>> torch.allclose(out, read(k, k, v, allocate(k, 0.3)), atol=1e-5)
    True
    """
    check(mode, value, "token", q, k, v, log_gate, scale)
    log_gate = audible(log_gate)
    if k.shape[1] == 1 and _fused(q, k, v, state, impl):
        check_inputs(k, tau, state, mask, None, 1, None)
        from .kernels import stepping as kernel

        if begin is not None:
            begin()
        out = kernel.step(
            q, k, v, state, taus(tau, k),
            mode=mode, value=value, scale=scale, log_gate=log_gate, mask=mask,
        )  # fmt: skip
        return out, state
    fine = finite(v, log_gate)
    if not readable(v) or not bool(fine.all()):
        k = torch.where(fine[..., None], k, torch.nan)
    found = allocate(k, tau, state=state, mask=mask, impl=impl)
    if k.shape[1] == 1:
        if begin is not None:
            begin()
        write_one(state, k, v, found, mode, value, log_gate)
        return _read_one(q, state, mode, value, scale, found).to(v.dtype), state
    out = read(q, k, v, found, mode=mode, value=value, scale=scale, log_gate=log_gate, state=state)
    if begin is not None:
        begin()
    return out, write_many(state, k, v, found, mode, value, log_gate, fine)


def _fused(q: Tensor, k: Tensor, v: Tensor, state: SlotState, impl: Impl) -> bool:
    """Whether one kernel writes and reads: on CUDA, without gradients, for sizes that it has."""
    wanted = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if impl == "torch" or not k.is_cuda or wanted or torch.compiler.is_compiling():
        return False
    if find_spec("triton") is None:
        return False
    from .kernels.stepping import fits

    return fits(v, state)


def _read_one(
    q: Tensor,
    state: SlotState,
    mode: Mode,
    value: Value,
    scale: float | Tensor | None,
    allocation: Allocation,
) -> Tensor:
    """Attention of one query per head and group over the slots (B, 1, H * G, C)."""
    with torch.autocast(q.device.type, enabled=False):
        slots, used = _filled(state)
        if torch.is_grad_enabled() and q.requires_grad:
            slots = slots.clone()  # later steps write to the buffers, and the gradient needs these
        weights = slots.weights
        keys, values = slots.keys.to(weights.dtype), slots.values.to(weights.dtype)
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        if isinstance(scale, Tensor):
            scale = scale.reshape(-1, 1)
        B, H = used.shape[:2]
        query = (q[:, 0].to(keys.dtype) * scale).reshape(B, H, -1, q.shape[-1])
        logits = query @ keys.mT + weights.log()[:, :, None]
        logits = logits.masked_fill(~used[:, :, None], -inf)
        share = logits.softmax(-1)
        if value == "mean":
            size = weights if mode == "mass" else slots.counts.to(weights.dtype)
            share = share / positive(size)[:, :, None]
        share = torch.where(used[:, :, None], share, 0)
        out = share @ torch.where(used[..., None], values, 0)
        blind = (allocation.assign < 0).transpose(1, 2)[..., None] | (logits == -inf).all(-1, True)
        return out.masked_fill(blind, 0).reshape(B, 1, -1, out.shape[-1])


def _filled(state: SlotState) -> tuple[SlotState, Tensor]:
    """The slots to look at, and which of them are filled; on the CPU the empty ones are cut off."""
    if state.keys.is_cpu and not torch.compiler.is_compiling():
        most = max(1, int(state.n_slots.max()))
        state = SlotState._make((*(x[:, :, :most] for x in state[:4]), *state[4:]))
    return state, state.used
