"""When a read of a whole sequence goes to the kernels: on CUDA, long, in 16 bits, not trained.

The kernels were measured on an H200 (docs, "What trains") and are checked against `reading.read` by
Triton's interpreter. The way to them was written where there was no GPU: `LONG`, from which on they
are taken, follows from that table and has not been measured by itself.
"""

# B batch, L tokens, H heads, D key size, E value size, N = B H streams

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from .allocation import Allocation
from .state import SlotState

LONG = 4096  # tokens from which on a kernel is faster than attention over all tokens
SMALLEST_SCALE = 1e-3  # the kernel of the mass divides by the scale, which may not be less


def read_by_kernels(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    mode: str,
    value: str,
    scale: float | Tensor,
    log_gate: Tensor | None,
    state: SlotState | None,
) -> Tensor | None:
    """What a kernel reads, in the type of ``v``; None if there is none for this."""
    known = (mode, value) in (("mass", "mean"), ("distinct", "first"))
    plain = log_gate is None and state is None and allocation.sequence is None
    if not known or not plain or q.shape[1] < LONG:
        return None
    if isinstance(scale, Tensor) or not scale >= SMALLEST_SCALE:
        return None
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    if trained or torch.compiler.is_compiling() or not _there(q):
        return None
    from .kernels import bounds, reading

    # Autocast rounds what goes to plain attention, and no other read.
    kind = _kind(q, k, v, rounded=mode == "mass" and allocation.mask is None)
    if kind is None or not {q.shape[3], v.shape[3]} <= set(bounds.WIDTHS):
        return None
    kernel = reading.read_mass if mode == "mass" else reading.read_first
    out = kernel(q.to(kind), k.to(kind), v.to(kind), *allocation.streams(), scale)
    return out.detach().to(v.dtype)


def _there(q: Tensor) -> bool:
    """Whether there is a device that runs kernels."""
    return q.is_cuda and find_spec("triton") is not None


def _kind(q: Tensor, k: Tensor, v: Tensor, *, rounded: bool) -> torch.dtype | None:
    """The 16 bits in which torch would read this too: those of autocast, or of all three."""
    kind = q.dtype if q.dtype == k.dtype == v.dtype else torch.float32
    if rounded and torch.is_autocast_enabled(q.device.type):
        kind = torch.get_autocast_dtype(q.device.type)
    return kind if kind in (torch.float16, torch.bfloat16) else None
