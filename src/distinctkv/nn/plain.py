"""Attention to all tokens by stock kernels, which know no bias: what is refused is moved away."""

# B batch, L tokens, H heads, D key size, C value size, G queries per head

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as fn

from .door import readable
from .allocation import Allocation


def attend_all(
    query: Tensor, key: Tensor, val: Tensor, allocation: Allocation, scale: float
) -> Tensor:
    """Causal attention (B, H * G, L, C) to the tokens that were not refused.

    On the CPU nothing was, or `allocate` would have said so. Elsewhere nobody knows, and refused
    tokens are put behind all others, where only their own queries see them.
    """
    kinds = {query.dtype, key.dtype, val.dtype}
    if len(kinds) > 1 and not torch.is_autocast_enabled(query.device.type):
        raise ValueError(
            f"q, k and v must have one type, got {query.dtype}, {key.dtype} and {val.dtype}; cast "
            "them"
        )
    group = query.shape[1] // key.shape[1]
    known = readable(key)
    if not known:
        real = (allocation.assign >= 0).transpose(1, 2)  # (B, H, L)
        place = _place(real)
        order = torch.empty_like(place).scatter_(2, place, _counted(place))
        key, val = (_taken(x.masked_fill(~real[..., None], 0), order) for x in (key, val))
        real, place, order = (x.repeat_interleave(group, 1) for x in (real, place, order))
        query = _taken(query.masked_fill(~real[..., None], 0), order)
    if group > 1:
        key, val = key.repeat_interleave(group, 1), val.repeat_interleave(group, 1)
    out = fn.scaled_dot_product_attention(query, key, val, is_causal=True, scale=scale)
    return out if known else _taken(out, place).masked_fill(~real[..., None], 0)


def _place(real: Tensor) -> Tensor:
    """Where each token goes (B, H, L): real ones first, all in their order."""
    ahead = real.cumsum(2)
    return torch.where(real, ahead - 1, ahead[..., -1:] + (~real).cumsum(2) - 1)


def _counted(place: Tensor) -> Tensor:
    return torch.arange(place.shape[2], device=place.device).expand_as(place)


def _taken(rows: Tensor, place: Tensor) -> Tensor:
    return rows.gather(2, place[..., None].expand(-1, -1, -1, rows.shape[-1]))
