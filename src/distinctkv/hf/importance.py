"""How much attention a token gets, and what that makes of a threshold."""

# B streams, H key-value heads, G query heads of each, L queries, R tokens outside, N slots

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from .attention import bias, takes, visible
from .care import Care
from .slots import Slots

ROWS = 256  # queries at a time, so that no matrix of all pairs is held
LEAST = 1e-3  # attention below this part of an even share counts as this


def received(
    query: Tensor,
    keys: Tensor,
    real: Tensor,
    seen: Tensor,
    slots: Slots,
    scaling: float,
    cap: float | None,
    logs: Tensor | None = None,
) -> Tensor:
    """Attention that each of the (B, H, R, D) window got from (B, H G, L, D) queries, (B, H, R).

    It is summed over the queries and meant over the heads that share a key, each query's attention
    in units of an even share: ``seen`` (B, L) says of how many tokens. Padding is not ``real``. The
    logarithms of what the queries' shares are divided by, (B, H G, L), need not be known.
    """
    B, H, R, _ = keys.shape
    G, L = query.shape[1] // H, query.shape[2]
    if takes(query, keys, keys, slots):
        from ..kernels import ragged_attention

        with torch.cuda.device(query.device):
            return ragged_attention.received(query, keys, real, seen, slots, scaling, cap, logs)
    got = torch.zeros(B, H, R, dtype=torch.float32, device=query.device)
    added = bias(slots.counts, cap)
    for b, heads in enumerate(slots.segments()):
        for h, rows in enumerate(heads):
            key = torch.cat((slots.keys[rows], keys[b, h])).float()
            n_slots = len(key) - R
            group = query[b, h * G : (h + 1) * G].float() * scaling
            for start in range(0, L, ROWS):
                part = slice(start, min(start + ROWS, L))
                end = R - L + part.stop  # what comes after the last of these they cannot see
                logits = group[:, part] @ key[: n_slots + end].mT
                logits[..., :n_slots] += added[rows]
                hidden = ~visible(real[b : b + 1, :end], part.stop - start)[0]
                logits[..., n_slots:].masked_fill_(hidden, -inf)
                share = logits.softmax(-1)[..., n_slots:].mean(0)
                got[b, h, :end] += (seen * real[:, R - L :])[b, part].float() @ share
    return got


def weights(
    got: Tensor,
    asked: Tensor,
    care: Care,
    rest: Tensor | None = None,
    before: Tensor | float = 0.0,
) -> Tensor:
    """By what to multiply the distances of (..., H, L) tokens that ``asked`` (..., L) queries saw.

    Infinite for a token that is spared; of (..., H, L) tokens that are not the ``rest``, none is.
    As many are spared as of the rest and (...) tokens of all heads ``before`` them would be, less
    what was spared of those: in small passes the part is met too.

    >>> got = torch.tensor([[8.0, 1.0, 2.0]])
    >>> weights(got, torch.tensor([2, 1, 2]), Care(importance=0.5, spare=0.1))
    tensor([[inf, 1., 1.]])
    """
    mean = (got / asked.clamp(min=1)[..., None, :]).clamp(min=LEAST)
    heavy = mean**care.importance
    if not care.spare:
        return heavy
    rest = torch.ones_like(mean, dtype=torch.bool) if rest is None else rest
    before = torch.as_tensor(before, dtype=torch.float64, device=rest.device)
    after = before + rest.flatten(-2).sum(-1)
    spared = (care.spare * after).ceil() - (care.spare * before).ceil()
    order = mean.masked_fill(~rest, -1.0).flatten(-2).argsort(-1, descending=True)
    ranks = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    first = torch.zeros_like(order).scatter(-1, order, ranks) < spared[..., None]
    return heavy.masked_fill(first.view_as(heavy), inf)


def reach(threshold: float | Tensor, weight: Tensor) -> Tensor:
    """How near is near for tokens of some weight; below 0 for those that are spared."""
    return torch.where(weight.isinf(), -1.0, threshold / weight)
