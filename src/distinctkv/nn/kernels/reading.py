"""Reads of whole streams over their slots on the device: what `nn.reading.read` gives, faster.

For inference: no gradient passes. Keys and values are read in the type they come in. A mass read
takes the slots as they were when a chunk began, and the chunk's own tokens one by one.
"""

# B streams, L tokens, H heads, G queries for each key, N = B H, D key size, E value size

from __future__ import annotations

from math import e, log2

import torch
import triton
from torch import Tensor

from .attend import attend_first, attend_mass
from .slots import PLACES, absorb, plant, refresh
from .tiles import tiles

CHUNK = 512  # tokens that a mass read takes one by one
BLOCK, TILE, WARPS, STAGES = 128, 64, 8, 3


def read_mass(
    q: Tensor, k: Tensor, v: Tensor, assign: Tensor, visible: Tensor, scale: float
) -> Tensor:
    """Attention in which a slot weighs as many tokens as it holds; its value is their mean.

    ``q`` (B, L, H G, D), ``k`` (B, L, H, D) and ``v`` (B, L, H, E) in 16 bits; ``assign`` and
    ``visible`` (B H, L): each token's slot, and the slots open when it came. Gives (B, L, H G, E).
    """
    B, L, H, E = v.shape
    N, G, step = B * H, q.shape[2] // H, scale * log2(e)
    q, v = _rows(q), _rows(v)
    slots, out = _planted(k, assign, visible), v.new_empty(B, L, H * G, E)
    sums = torch.zeros(N, L, E, device=v.device)
    counts = torch.zeros(N, L, device=v.device)
    means, biases = v.new_empty(N, L, E), q.new_empty(N, L, PLACES.value)
    taken = [tiles(table, TILE) for table in (slots, means, biases)]
    chunk = min(CHUNK, triton.next_power_of_2(L))
    for begin in range(0, L, chunk):
        attend_mass[(triton.cdiv(chunk, BLOCK), N * G)](
            q, *taken, slots, v, visible, assign, out, step, begin, H, G, L, L,
            *q.stride()[:3], *v.stride()[:3],
            D=q.shape[3], E=E, R=BLOCK, T=TILE, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        if begin + chunk < L:
            grid = (triton.cdiv(chunk, 32), N)
            absorb[grid](v, assign, sums, counts, begin, H, L, L, *v.stride()[:3], E=E, R=32)
            refresh[grid](sums, counts, assign, means, biases, step, begin, L, L, E=E, R=32)
    return out


def read_first(
    q: Tensor, k: Tensor, v: Tensor, assign: Tensor, visible: Tensor, scale: float
) -> Tensor:
    """Attention in which each slot counts once and keeps its first value; see `read_mass`."""
    B, L, H, E = v.shape
    G = q.shape[2] // H
    q = _rows(q)
    taken = [tiles(_planted(x, assign, visible), TILE) for x in (k, v)]
    out = v.new_empty(B, L, H * G, E)
    attend_first[(triton.cdiv(L, BLOCK), B * H * G)](
        q, *taken, visible, assign, out, scale * log2(e), H, G, L, L, *q.stride()[:3],
        D=q.shape[3], E=E, R=BLOCK, T=TILE, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out


def _rows(x: Tensor) -> Tensor:
    """A tensor whose rows lie in one piece each; heads and tokens may lie anywhere."""
    return x if x.stride(3) == 1 else x.contiguous()


def _planted(rows: Tensor, assign: Tensor, visible: Tensor) -> Tensor:
    """The leaders' rows of (B, L, H, D), where their slots are (N, L, D)."""
    rows = _rows(rows)
    B, L, H, D = rows.shape
    slots = rows.new_empty(B * H, L, D)
    plant[(triton.cdiv(L, 64), B * H)](
        rows, assign, visible, slots, H, L, L, *rows.stride()[:3], D=D, R=64
    )
    return slots
