"""The paper's read of a whole sequence (eq. 3, first values): attention over the openers alone.

A slot is the token that opened it, so M columns do where attention has L, and every gradient goes
where it belongs.
"""

# B batch, L tokens, H heads, S slots, D key size, C value size, G queries per head

from __future__ import annotations

from math import inf

import torch
from torch import Tensor
from torch.nn import functional as fn

from .allocation import Allocation
from .columns import QUERIES



def attend_openers(
    query: Tensor,
    key: Tensor,
    val: Tensor,
    allocation: Allocation,
    log_gate: Tensor | None,
    scale: float,
) -> Tensor:
    """Attention (B, H * G, L, C) of each query to the slots opened by its time."""
    L, group = query.shape[2], query.shape[1] // key.shape[1]
    wide = key.dtype if log_gate is None else torch.promote_types(key.dtype, torch.float32)
    opener = _opener(allocation)
    source, real = opener.clamp(min=0), (allocation.assign >= 0).transpose(1, 2)
    keys, values = (_take(x.to(wide), source, opener >= 0) for x in (key, val))
    gate = None if log_gate is None else log_gate.to(wide).transpose(1, 2).gather(2, source)
    time = torch.arange(L, device=query.device)[:, None]
    keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
    real = real.repeat_interleave(group, 1)[..., None]
    query = torch.where(real, query.to(wide), 0)
    parts = []
    for start in range(0, L, QUERIES):
        part = slice(start, start + QUERIES)
        visible = (opener >= 0)[:, :, None] & (opener[:, :, None] <= time[part])
        if allocation.sequence is not None:
            ids = allocation.sequence[:, None].expand(-1, opener.shape[1], -1)
            visible &= ids[:, :, part, None] == ids.gather(2, source)[:, :, None]
        if gate is not None:
            visible &= gate[:, :, None] > -inf
        visible = visible.repeat_interleave(group, 1)
        blind = ~(real[:, :, part] & visible.any(-1, keepdim=True))
        mask = visible | blind
        if gate is not None:
            mask = torch.where(mask, gate.repeat_interleave(group, 1)[:, :, None], -inf)
            mask = mask.masked_fill(blind, 0)
        out = fn.scaled_dot_product_attention(
            query[:, :, part], keys, values, attn_mask=mask, scale=scale
        )
        parts.append(out.masked_fill(blind, 0))
    return torch.cat(parts, 2)


def _opener(allocation: Allocation) -> Tensor:
    """The token that opened each slot; on the CPU without the slots that none opened."""
    opener = allocation.opener
    if opener.is_cpu and not torch.compiler.is_compiling():
        return opener[:, :, : max(1, int(allocation.n_slots.max()))]
    return opener


def _take(tokens: Tensor, source: Tensor, real: Tensor) -> Tensor:
    """Rows (B, H, S, D) of these tokens, 0 where there is none."""
    rows = tokens.gather(2, source[..., None].expand(-1, -1, -1, tokens.shape[-1]))
    return torch.where(real[..., None], rows, 0)
