"""Soft allocation that trains: causal novelty, soft reads and the budget penalty."""

# B sequences, L tokens, H heads, D key size, C value size, Q queries

from __future__ import annotations

from math import inf, isfinite

import torch
from torch import Tensor
from torch.nn import functional as fn

from ..kernels.limits import FURTHEST, LENGTHS
from .leaders import error, halves
from .mixer import check_mask, reads_without_sync

# Tokens compared with all before them at once: few leave less of a square to work out in vain, many
# are fewer launches.
ROWS = 512
ROWS_ON_CPU = 128
LEAST = -1e5  # a logarithm of a gate that is 0 in any softmax


def causal_novelty(keys: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Novelty of keys (B, L, H, D) of length one to all keys before them: 1 - max cosine.

    Worked out as half the squared distance to the nearest, so that a repeat is exactly 0; what is
    too little to be told from 0 in float64 is 0, too. The first token has novelty 2, the largest
    there is, and padding, whatever it holds, 0. The gradient goes to both ends. On the CPU, keys
    of another length are refused; `unit` gives them length one.

    >>> causal_novelty(torch.eye(2)[[0, 1, 0]].reshape(1, 3, 1, 2)).flatten()
    tensor([2., 1., 0.])
    """
    if keys.ndim != 4 or not keys.is_floating_point():
        raise ValueError(f"keys must be floats (B, L, H, D), got {keys.dtype} {tuple(keys.shape)}")
    check_mask(mask, keys)
    if 0 in keys.shape:
        return keys.sum(-1)
    if mask is not None:
        keys = torch.where(mask[..., None, None], keys, 0)
    near, alone = _nearest_before(keys.detach(), mask)
    wide = keys.to(torch.promote_types(keys.dtype, torch.float32))
    gaps = wide - _rows(wide, near)
    apart = gaps.square().sum(-1) / 2
    apart = torch.where(apart > error(keys.shape[-1], torch.float64), apart, 0)
    apart = torch.where(alone, FURTHEST, apart).to(keys.dtype)
    return apart if mask is None else torch.where(mask[..., None], apart, 0)


@torch.no_grad()
def _nearest_before(keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The token before each that is nearest to it, and which tokens have none (B, L, H)."""
    with torch.autocast(keys.device.type, enabled=False):
        rows = keys.transpose(1, 2).double()  # near repeats differ by less than float32 tells
        half = halves(rows)
        _check_lengths(half, mask)
        if mask is not None:
            half = half.masked_fill(~mask[:, None], inf)
        L = keys.shape[1]
        most = max(1, min(L, ROWS_ON_CPU if keys.is_cpu else ROWS))
        later = torch.ones(most, most, dtype=torch.bool, device=keys.device).triu()
        parts = []
        for start in range(0, L, most):
            stop = min(L, start + most)
            scores = rows[:, :, start:stop] @ rows[:, :, :stop].mT
            scores -= half[:, :, None, :stop]  # the nearest, not the longest in its direction
            n = stop - start
            scores[..., start:].masked_fill_(later[:n, :n], -inf)
            parts.append(scores.max(-1))
    best = torch.cat([part.values for part in parts], 2).transpose(1, 2)
    near = torch.cat([part.indices for part in parts], 2).transpose(1, 2)
    return near, best == -inf


def _rows(keys: Tensor, place: Tensor) -> Tensor:
    """Keys (B, L, H, D) at these places (B, L, H); by whole rows, which `gather` would not take."""
    B, L, H, _ = keys.shape
    stream = torch.arange(B, device=keys.device)[:, None, None] * L
    row = (stream + place) * H + torch.arange(H, device=keys.device)
    return keys.flatten(0, 2).index_select(0, row.flatten()).view(keys.shape)


def _check_lengths(half: Tensor, mask: Tensor | None) -> None:
    """Refuse keys that are not of length one, by half their squared lengths (B, H, L)."""
    if not reads_without_sync(half):
        return
    lengths = (2 * half).sqrt()
    wrong = ~((lengths > LENGTHS[0]) & (lengths < LENGTHS[1]))
    if mask is not None:
        wrong &= mask[:, None]
    try:
        n_wrong = int(wrong.sum())
    except RuntimeError:  # in vmap there are no numbers
        return
    if n_wrong:
        raise ValueError(
            f"keys must have length one, {n_wrong} have not, the first of them "
            f"{float(lengths[wrong][0]):.3g}; use distinctkv.nn.functional.unit, and mask padding"
        )


def soft_read(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_gate: Tensor,
    *,
    scale: float | None = None,
    mask: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """Attention with log g (B, L, H) added to the logit of each token (B, Q, H, C).

    A token with g near 0 is as good as not stored, one with g near 1 is kept. ``causal`` lets query
    t see tokens up to t; without it every query sees the whole stream, as a query after it does.
    A query that sees nothing reads 0, and so does one of padding: ``mask`` (B, L) is true for real
    tokens, of which causal queries are the first Q. What padding holds does not matter.
    """
    L, Q = k.shape[1], q.shape[1]
    if log_gate.shape != k.shape[:3] or v.shape[:3] != k.shape[:3] or (causal and Q > L):
        raise ValueError(
            f"log_gate and v must be (B, L, H, ...) as k {tuple(k.shape)}, and causal queries no "
            f"more than its tokens, got {tuple(log_gate.shape)}, {tuple(v.shape)} and {Q} queries"
        )
    if q.ndim != 4 or (len(q), *q.shape[2:]) != (len(k), *k.shape[2:]):
        raise ValueError(f"q must be (B, Q, H, D) as k {tuple(k.shape)}, got {tuple(q.shape)}")
    check_mask(mask, k)
    if scale is not None and not torch.compiler.is_compiling() and not isfinite(scale):
        raise ValueError(f"scale must be a finite number, 1 / theta, got {scale}")
    if causal:  # later tokens are seen by no query
        k, v, log_gate = k[:, :Q], v[:, :Q], log_gate[:, :Q]
        mask = None if mask is None else mask[:, :Q]
    seen = log_gate > -inf
    if mask is not None:
        k, v = (torch.where(mask[..., None, None], x, 0) for x in (k, v))
        seen = seen & mask[..., None]
        if causal:
            q = torch.where(mask[..., None, None], q, 0)
    log_gate = torch.where(seen, log_gate, LEAST).clamp(min=LEAST)
    some = seen.cumsum(1) > 0 if causal else seen.any(1, keepdim=True).expand(-1, Q, -1)
    if mask is not None and causal:
        some = some & mask[..., None]
    with torch.autocast(q.device.type, enabled=False):
        wide = torch.promote_types(q.dtype, torch.float32)
        query, key, val = (x.to(wide).transpose(1, 2) for x in (q, k, v))
        # As one more number of each key, which queries have as 1, the bias fills no square; kernels
        # want rows of a multiple of eight numbers.
        query = query * (q.shape[-1] ** -0.5 if scale is None else scale)
        width = 8 - q.shape[-1] % 8
        query = torch.cat((query, torch.ones_like(query[..., :1])), -1)
        key = torch.cat((key, log_gate.to(wide).transpose(1, 2)[..., None]), -1)
        query, key = (fn.pad(x, (0, width - 1)) for x in (query, key))
        out = fn.scaled_dot_product_attention(query, key, val, is_causal=causal, scale=1.0)
        return out.transpose(1, 2).masked_fill(~some[..., None], 0).to(v.dtype)


def budget_penalty(gate: Tensor, budget: float | Tensor) -> Tensor:
    """Mean over streams of ((sum of g - M) / M) ** 2 for gates (B, L, H): the paper's, over M ** 2.

    >>> budget_penalty(torch.ones(1, 6, 1), budget=4)
    tensor(0.2500)
    """
    most = torch.as_tensor(budget)
    if reads_without_sync(most) and not ((most > 0) & (most < inf)).all():
        raise ValueError(f"budget must be above 0 tokens and finite, got {budget}")
    return ((gate.sum(1) - budget) / budget).square().mean()


def hard_keep(scores: Tensor, budget: int, *, mask: Tensor | None = None) -> Tensor:
    """Which ``budget`` tokens of each stream score highest (B, L, H); the earlier of equals.

    A score of nan is below all others, and never kept.

    >>> hard_keep(torch.tensor([0.1, 0.9, 0.5, 0.9]).reshape(1, 4, 1), budget=2).flatten()
    tensor([False,  True, False,  True])
    """
    if budget < 0:
        raise ValueError(f"budget must be 0 tokens or more, got {budget}")
    if not scores.is_floating_point():
        raise ValueError(f"scores must be floats, got {scores.dtype}; scores.float() are")
    check_mask(mask, scores)
    able = ~scores.isnan()
    if mask is not None:
        able = able & mask[..., None]
    # By score, and then those that may be kept first: a score of -inf is a score.
    order = scores.masked_fill(~able, -inf).sort(dim=1, descending=True, stable=True).indices
    first = able.gather(1, order).to(torch.uint8).sort(dim=1, descending=True, stable=True).indices
    order = order.gather(1, first)
    keep = torch.zeros_like(scores, dtype=torch.bool)
    return keep.scatter(1, order[:, :budget], True) & able
