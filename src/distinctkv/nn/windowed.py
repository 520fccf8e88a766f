"""The mass read with an exact window beside it: near tokens as they are, far ones by their slots.

A token is written into the slots when it leaves the window, so it is never counted twice. With
the mass read each far token stands for itself under the key of its slot, and all is one softmax
over three kinds of columns: slots from before, far tokens, near tokens.
"""

# B streams, L queries, N >= L tokens the last L of which are the queries' own, F = tokens written,
# H heads, D head size, S slots, W window, T columns

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as fn

from .columns import positive
from .state import SlotState

QUERIES = 512  # queries whose masks are held at once
HUSHED = -1e30  # log weight of padding: nothing beside a token, yet a query may see nothing else


class Columns(NamedTuple):
    """What a query can see: keys and values (B, T, H, D), and the logarithm of their weight."""

    keys: Tensor
    values: Tensor
    weight: Tensor | None  # (B, H, T), None if all are 1


def columns(
    far: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState | None,
    written: Tensor | None,
    real: Tensor | None = None,
) -> Columns:
    """Slots from before, the first F tokens under their slots' keys ``far``, all N tokens again.

    Those of the F that are not ``written`` (B, F) and of the N that are not ``real`` (B, N) weigh
    nothing.
    """
    F = far.shape[1]
    keys, values = [far, k], [v[:, :F], v]
    if state is None and written is None and real is None:
        return Columns(torch.cat(keys, 1), torch.cat(values, 1), None)
    weight = k.new_zeros(k.shape[0], k.shape[2], F + k.shape[1])
    if written is not None:
        weight[..., :F].masked_fill_(~written[:, None], -torch.inf)
    if real is not None:
        weight[..., F:].masked_fill_(~real[:, None], HUSHED)
    if state is not None:
        used = state.used
        count = torch.where(used, state.weights, 1)
        held = torch.where(used[..., None], state.values / positive(count)[..., None], 0)
        keys.insert(0, torch.where(used[..., None], state.keys, 0).transpose(1, 2).to(k))
        values.insert(0, held.transpose(1, 2).to(v))
        weight = torch.cat([count.log().masked_fill(~used, -torch.inf).to(weight), weight], -1)
    return Columns(torch.cat(keys, 1), torch.cat(values, 1), weight)


def visible(now: Tensor, n_tokens: int, n_written: int, window: int) -> Tensor:
    """Which of F + N token columns a query at each place ``now`` (Q,) may see: far, then near ones.

    >>> visible(torch.tensor([1, 2]), 3, 2, 2).int()  # tokens 1 and 2 ask; 0 and 1 are written
    tensor([[0, 0, 1, 1, 0],
            [1, 0, 0, 1, 1]], dtype=torch.int32)
    """
    now = now[:, None]
    token = torch.arange(n_tokens, device=now.device)
    far = token[:n_written] <= now - window
    near = (token <= now) & (token > now - window)
    return torch.cat([far, near], 1)


def read_near_and_far(
    q: Tensor, seen: Columns, n_tokens: int, n_written: int, window: int
) -> Tensor:
    """One softmax over all columns: (B, L, H, D); queries are those of the last L of N tokens."""
    key, value = seen.keys.transpose(1, 2), seen.values.transpose(1, 2)
    before = key.shape[2] - n_written - n_tokens  # slots from before
    at, parts = places(q, n_tokens), []
    for start in range(0, q.shape[1], QUERIES):
        part = slice(start, start + QUERIES)
        allowed = visible(at[part], n_tokens, n_written, window)
        allowed = fn.pad(allowed, (before, 0), value=True)
        bias = allowed if seen.weight is None else _bias(seen.weight, allowed)
        query = q[:, part].transpose(1, 2)
        with torch.autocast(q.device.type, enabled=False):
            parts.append(fn.scaled_dot_product_attention(query, key, value, bias, scale=1.0))
    return torch.cat(parts, 2).transpose(1, 2)


def places(q: Tensor, n_tokens: int) -> Tensor:
    """Where queries (B, L, H, D) stand, the last L of N."""
    return torch.arange(n_tokens - q.shape[1], n_tokens, device=q.device)


def slot_reads(
    q: Tensor, keys: Tensor, assign: Tensor, mask: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The weight each query gives to the slot of each far token, (B, H, L, F)."""
    logits = torch.einsum("blhd,bthd->bhlt", q, keys)
    if weight is not None:
        logits = logits + weight[: len(logits), :, None]
    share = logits.masked_fill(~mask, -torch.inf).softmax(-1)[..., : assign.shape[1]]
    slot = assign.transpose(1, 2)
    same = (slot[..., :, None] == slot[..., None, :]).to(share)
    return share @ same


def _bias(weight: Tensor, allowed: Tensor) -> Tensor:
    return weight[:, :, None].masked_fill(~allowed, -torch.inf)
