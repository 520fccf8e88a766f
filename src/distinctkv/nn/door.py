"""The door of allocation: shapes that fit, tau for each stream, packed sequences by their ids."""

# B batch, L tokens, H heads, D key size

from __future__ import annotations

from math import isnan

import torch
from torch import Tensor

from .state import SlotState


def check(
    keys: Tensor,
    tau: float | Tensor,
    state: SlotState | None,
    mask: Tensor | None,
    sequences: Tensor | None,
    chunk: int,
    capacity: int | None,
) -> None:
    """Refuse what has no meaning, by shape alone: nothing is read from the device."""
    if keys.ndim != 4 or not keys.is_floating_point():
        raise ValueError(f"keys must be floats (B, L, H, D), got {keys.dtype} {tuple(keys.shape)}")
    if 0 in keys.shape:
        raise ValueError(f"there are no tokens to allocate in keys {tuple(keys.shape)}")
    B, L, H, D = keys.shape
    if isinstance(tau, Tensor):
        if tau.shape not in ((), (H,)):
            raise ValueError(
                f"tau must be one number or one per head ({H}), got {tuple(tau.shape)}"
            )
    elif isnan(tau):
        raise ValueError("tau must be a number, got nan")
    if mask is not None and (mask.shape != (B, L) or mask.dtype != torch.bool):
        raise ValueError(
            f"mask must be bool ({B}, {L}), true for real tokens, got {mask.dtype} "
            f"{tuple(mask.shape)}; an attention_mask of 0 and 1 has .bool()"
        )
    if chunk < 1 or (capacity is not None and capacity < 1):
        raise ValueError(f"chunk and capacity must be 1 or more, got {chunk} and {capacity}")
    if sequences is not None:
        if state is not None:
            raise ValueError("packed sequences start empty; continue each one in a row of its own")
        if sequences.shape != (B, L) and not (sequences.ndim == 1 and B == 1):
            raise ValueError(
                f"sequences must be ids ({B}, {L}), or cumulative lengths when B is 1, "
                f"got {tuple(sequences.shape)} and B = {B}"
            )
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


def taus(tau: float | Tensor, keys: Tensor) -> Tensor:
    """Tau for each stream (B, H), in float64: the law compares in it."""
    B, _, H, _ = keys.shape
    if isinstance(tau, Tensor):
        return tau.detach().to(keys.device, torch.float64).expand(B, H)
    return torch.full((B, H), tau, dtype=torch.float64, device=keys.device)


def packed(
    sequences: Tensor | None, mask: Tensor | None, L: int
) -> tuple[Tensor | None, Tensor | None]:
    """Sequence ids (B, L), and the mask without what lies behind the last sequence."""
    if sequences is None or sequences.ndim == 2:
        return sequences, mask
    place = torch.arange(L, device=sequences.device, dtype=sequences.dtype)
    inside = (place < sequences[-1])[None]
    ids = torch.searchsorted(sequences[1:], place, right=True)[None]
    return ids, inside if mask is None else mask & inside
