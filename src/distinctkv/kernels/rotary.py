"""Keys before their rotation: every number is read once and written once."""

# M tokens of all heads, D key size, R rotated part of D, P tokens whose turns are known

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64


def unturn(keys: Tensor, cos: Tensor, sin: Tensor, real: Tensor | None = None) -> Tensor:
    """(..., D) keys turned back by (..., R / 2) cosines and sines that may lack heads or layers.

    Zeros for what is not ``real``, (...) as they are.
    """
    half = cos.shape[-1]
    keys, rows = keys.contiguous(), cos.shape[:-1]
    made = torch.empty(keys.shape, dtype=torch.float32, device=keys.device)
    M, D = keys.numel() // max(keys.shape[-1], 1), keys.shape[-1]
    if M == 0:
        return made
    at = torch.arange(rows.numel(), dtype=torch.int32, device=keys.device).view(rows)
    at = (at if real is None else torch.where(real, at, -1)).expand(keys.shape[:-1])
    turn[(triton.cdiv(M, ROWS),)](
        keys, cos.contiguous(), sin.contiguous(), at.reshape(-1), made, M, D=D, H=half,
        W=triton.next_power_of_2(half), X=triton.next_power_of_2(max(D - 2 * half, 1)), T=ROWS,
    )  # fmt: skip
    return made


@triton.jit(do_not_specialize=["M"])
def turn(
    keys,  # (M, D)
    cosines,  # (P, H)
    sines,  # (P, H)
    places,  # (M,) int32: the turn of each, -1 if it is not there
    made,  # (M, D) float32
    M,
    D: tl.constexpr,
    H: tl.constexpr,  # R / 2
    W: tl.constexpr,  # H and D - R up to a power of two
    X: tl.constexpr,
    T: tl.constexpr,
):
    """T tokens; grid (M / T,)."""
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    there = row < M
    d = tl.arange(0, W)[None, :]
    inside = there[:, None] & (d < H)
    place = tl.load(places + row, mask=there, other=-1).to(tl.int64)
    real = (place >= 0)[:, None]
    at = place[:, None] * H + d
    cos = tl.load(cosines + at, mask=inside & real, other=0.0)
    sin = tl.load(sines + at, mask=inside & real, other=0.0)
    begin = row[:, None] * D
    first = tl.load(keys + begin + d, mask=inside & real, other=0.0).to(tl.float32)
    second = tl.load(keys + begin + H + d, mask=inside & real, other=0.0).to(tl.float32)
    tl.store(made + begin + d, first * cos + second * sin, mask=inside)
    tl.store(made + begin + H + d, second * cos - first * sin, mask=inside)
    if D > 2 * H:
        x = 2 * H + tl.arange(0, X)[None, :]
        inside = there[:, None] & (x < D)
        rest = tl.load(keys + begin + x, mask=inside & real, other=0.0).to(tl.float32)
        tl.store(made + begin + x, rest, mask=inside)
