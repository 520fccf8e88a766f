"""The door of allocation: shapes that fit, tau for each stream, packed sequences by their ids."""

# B batch, L tokens, H heads, D key size

from __future__ import annotations

from math import isnan
from numbers import Real

import torch
from torch import Tensor

from .state import SlotState


def check_inputs(
    keys: Tensor,
    tau: float | Tensor,
    state: SlotState | None,
    mask: Tensor | None,
    sequences: Tensor | None,
    chunk: int,
    capacity: int | None,
) -> None:
    """Refuse what has no meaning, by shapes and what lies on the CPU: no device is waited for."""
    if not isinstance(keys, Tensor):
        raise TypeError(
            f"keys must be a tensor (B, L, H, D), got {type(keys).__name__}; torch.as_tensor "
            "makes one"
        )
    if keys.ndim != 4 or not keys.is_floating_point():
        raise ValueError(f"keys must be floats (B, L, H, D), got {keys.dtype} {tuple(keys.shape)}")
    if 0 in keys.shape:
        raise ValueError(f"there are no tokens to allocate in keys {tuple(keys.shape)}")
    B, L, H, D = keys.shape
    if isinstance(tau, bool) or not isinstance(tau, Tensor | Real):
        raise TypeError(
            f"tau must be a number or a tensor of one or {H}, got {tau!r}; a Concentration has .tau"
        )
    if isinstance(tau, Tensor) and tau.shape not in ((), (H,)):
        raise ValueError(f"tau must be one number or one per head ({H}), got {tuple(tau.shape)}")
    if _unknown(tau):
        raise ValueError(f"tau must be a number, got {tau}")
    check_mask(mask, keys)
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
        if sequences.is_floating_point():
            raise ValueError(f"sequences must be whole numbers, got {sequences.dtype}")
        if sequences.ndim == 1:
            _check_lengths(sequences, L)
        elif readable(sequences):
            _check_runs(sequences, mask)
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


def check_mask(mask: Tensor | None, tokens: Tensor) -> None:
    """Refuse what is not true or false for each of tokens (B, L, ...)."""
    if mask is not None and (mask.shape != tokens.shape[:2] or mask.dtype != torch.bool):
        raise ValueError(
            f"mask must be bool {tuple(tokens.shape[:2])}, true for real tokens, got {mask.dtype} "
            f"{tuple(mask.shape)}; an attention_mask of 0 and 1 has .bool()"
        )


def _check_lengths(cumulative: Tensor, L: int) -> None:
    """Refuse lengths that do not run from 0 up to L at most, where a look makes nobody wait."""
    if len(cumulative) < 2:
        raise ValueError(
            f"cumulative lengths are 0 and where each sequence ends, got {len(cumulative)} numbers"
        )
    if not readable(cumulative):
        return
    ends = cumulative.tolist()
    if ends[0] != 0 or ends != sorted(ends) or ends[-1] > L:
        raise ValueError(
            f"cumulative lengths must begin with 0, never fall and be at most {L}, got {ends}"
        )


def _check_runs(ids: Tensor, mask: Tensor | None) -> None:
    """Refuse ids (B, L) that come back after another: positions do, sequences do not."""
    for row in range(len(ids)):
        real = ids[row] if mask is None else ids[row, mask[row].to(ids.device)]
        runs = torch.unique_consecutive(real)
        if len(runs) > len(again := runs.unique(return_counts=True)[1]):
            back = runs.unique()[again > 1].tolist()
            raise ValueError(
                f"row {row} of sequences has {len(runs)} runs of {len(again)} ids: {back[:4]} come "
                "back after another; give each sequence one run, and no positions"
            )


def _unknown(tau: float | Tensor) -> bool:
    """Whether tau is seen to be nan."""
    if isinstance(tau, Tensor):
        return readable(tau) and bool(tau.isnan().any())
    return isnan(tau)


def readable(numbers: Tensor) -> bool:
    """Whether a look makes nobody wait."""
    return numbers.is_cpu and not torch.compiler.is_compiling()


def least(numbers: Tensor) -> float:
    """The least of them; 0 where nobody may look, or where what is seen would be held for good.

    So where a gradient will come back: what a checkpoint computes again may be other numbers, and
    must take the same way.
    """
    if not readable(numbers) or torch._C._get_tracing_state() is not None or not numbers.numel():
        return 0.0
    if numbers.requires_grad:
        return 0.0
    try:
        return float(numbers.detach().min())
    except RuntimeError:  # in vmap and of fake tensors there are no numbers
        return 0.0


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
