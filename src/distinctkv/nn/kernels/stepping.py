"""Decoding on the device: one token for each stream, in static buffers, fit for a CUDA graph."""

# B streams, H heads, G queries for each key, N = B H, S room for slots, D key size, E value size

from __future__ import annotations

from math import e, log2
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from .bounds import WIDTHS, single
from .commit import commit
from .probe import probe

if TYPE_CHECKING:
    from ..slot_state import SlotState

TILE, WARPS, STAGES = 32, 2, 3
WAVES = 8  # programs for each processor of the device


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState,
    tau: Tensor,
    *,
    mode: str = "mass",
    value: str = "mean",
    scale: float | Tensor | None = None,
    log_gate: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Write one token (B, 1, H, D) into ``state``, in place, and read it (B, 1, H G, E).

    ``tau`` (B, H) is float64. The rest, and what comes out, is as `distinctkv.nn.functional.step`
    has it. Nothing waits for the device, so the call can be captured in a CUDA graph.
    """
    B, H, S, D = state.keys.shape
    E, N = v.shape[3], B * H
    G = q.shape[2] // H
    P = parts(N * G, S, q.device)
    parted = (3 * N * P, N * G * P, N * G * P, N * G * P * E)  # nearest, tops, totals, means
    out = v.new_empty(B, 1, H * G, E)
    scales = _scales(scale, D, N, G, q.device)
    queries, keys, fresh = q.contiguous(), k.to(state.keys.dtype).contiguous(), v.contiguous()
    slots = (state.keys, state.values, state.weights, state.counts, state.n_slots)
    joined = (*(torch.empty(n, device=q.device) for n in parted), scales)
    sizes = {"G": G, "D": D, "E": E, "T": TILE, "MASS": mode == "mass", "MEAN": value == "mean"}
    probe[(P, N * G)](queries, keys, *slots, *joined, S, P, **sizes, STAGES=STAGES, num_warps=WARPS)
    commit[(N,)](
        queries, keys, fresh, _gates(log_gate, N, q.device), _alive(mask, B, H, q.device), *slots,
        state.overflow, state.seen, state.refused, tau.contiguous(), *joined, out, single(D), S,
        P=P, LAST=value == "last", **sizes, num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    return out


def fits(v: Tensor, state: SlotState) -> bool:
    """Whether `step` can take these: sizes that are powers of two, values held in float32.

    >>> from distinctkv.nn.functional import SlotState
    >>> token = torch.zeros(1, 1, 2, 16)
    >>> fits(token, SlotState.empty(token, token, capacity=8))
    True
    >>> fits(token, SlotState.empty(token[..., :5], token, capacity=8))
    False
    """
    sizes = {state.keys.shape[3], v.shape[3]}
    return sizes <= set(WIDTHS) and state.values.dtype == torch.float32


def parts(n_reads: int, capacity: int, device: torch.device) -> int:
    """How many programs share the slots of one read: enough to fill the device, a power of two."""
    if device.type != "cuda":
        return 2
    n_processors = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = max(1, WAVES * n_processors // n_reads)
    return int(triton.next_power_of_2(min(64, wanted, triton.cdiv(capacity, TILE))))


def _scales(scale: float | Tensor | None, D: int, N: int, G: int, device: torch.device) -> Tensor:
    """1/theta for each read (N, G), in base two."""
    if scale is None:
        scale = D**-0.5
    if isinstance(scale, Tensor):
        heads = scale.numel()
        each = scale.to(device, torch.float32).reshape(1, heads).expand(N * G // heads, heads)
        return (each * log2(e)).contiguous()
    return torch.full((N, G), scale * log2(e), device=device)


def _gates(log_gate: Tensor | None, N: int, device: torch.device) -> Tensor:
    if log_gate is None:
        return torch.ones(N, device=device)
    return log_gate.float().exp().contiguous()


def _alive(mask: Tensor | None, B: int, H: int, device: torch.device) -> Tensor:
    if mask is None:
        return torch.ones(B * H, dtype=torch.int8, device=device)
    return mask.reshape(B, 1).expand(B, H).to(torch.int8).contiguous()
