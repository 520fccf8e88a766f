"""`metric.products` of rotated queries in Triton: turned back on the way, never written."""

# B streams, Q query heads, N = B Q, L tokens, D query size, H = D / 2, T tokens at a time

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

from .metric import BLOCK

TOKENS, WARPS, WIDEST = 64, 4, 128


def takes(query: Tensor, cos: Tensor) -> bool:
    """Whether the sums fit beside a processor, and all of a query turns."""
    return query.shape[-1] == 2 * cos.shape[-1] and query.shape[-1] <= WIDEST


def products(query: Tensor, cos: Tensor, sin: Tensor, real: Tensor) -> Tensor:
    """Sums of q q' over (B, Q, L, D) queries turned back, (B, Q, D, D) in float64.

    ``cos`` and ``sin`` (B, L, D / 2); queries that are not ``real`` (B, L) are left out.
    """
    B, Q, L, D = query.shape
    query = query if query.stride(3) == 1 else query.contiguous()
    made = query.new_empty(triton.cdiv(L, BLOCK), B * Q, D, D, dtype=torch.float32)
    gather[(len(made), B * Q)](
        query, cos.contiguous(), sin.contiguous(), real.contiguous().view(torch.uint8), made,
        Q, L, *query.stride()[:3],
        H=D // 2, W=max(16, triton.next_power_of_2(D // 2)), T=TOKENS, S=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return made.sum(0, dtype=torch.float64).view(B, Q, D, D)


@triton.jit(do_not_specialize=["L"], do_not_specialize_on_alignment=["real"])
def gather(
    queries,  # (B, Q, L, D)
    cosines,  # (B, L, H)
    sines,
    real,  # (B, L) uint8
    made,  # (L / S, N, D, D) float32
    Q,
    L,
    batch_step,
    head_step,
    token_step,
    H: tl.constexpr,
    W: tl.constexpr,  # H up to a power of two
    T: tl.constexpr,
    S: tl.constexpr,
):
    """Products of S tokens of a head; grid (L / S, N)."""
    block, head = tl.program_id(0), tl.program_id(1)
    batch = (head // Q).to(tl.int64)
    d = tl.arange(0, W)
    mine = queries + batch * batch_step + (head % Q).to(tl.int64) * head_step
    upper = tl.zeros((W, W), tl.float32)
    across = tl.zeros((W, W), tl.float32)
    lower = tl.zeros((W, W), tl.float32)
    for start in range(0, S, T):
        token = block * S + start + tl.arange(0, T)
        there = tl.load(real + batch * L + token, mask=token < L, other=0) != 0
        inside = there[:, None] & (d < H)[None, :]
        at = (batch * L + token)[:, None] * H + d[None, :]
        cos = tl.load(cosines + at, mask=inside, other=0.0)
        sin = tl.load(sines + at, mask=inside, other=0.0)
        row = token.to(tl.int64)[:, None] * token_step + d[None, :]
        first = tl.load(mine + row, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(mine + H + row, mask=inside, other=0.0).to(tl.float32)
        one, two = first * cos + second * sin, second * cos - first * sin
        # Three products of the matrix units make one that is as good as float32's.
        upper = tl.dot(one.T, one, upper, input_precision="tf32x3")
        across = tl.dot(one.T, two, across, input_precision="tf32x3")
        lower = tl.dot(two.T, two, lower, input_precision="tf32x3")
    to = made + (block * tl.num_programs(1) + head).to(tl.int64) * 4 * H * H
    row, column = d[:, None], d[None, :]
    inside = (row < H) & (column < H)
    tl.store(to + row * 2 * H + column, upper, mask=inside)
    tl.store(to + row * 2 * H + H + column, across, mask=inside)
    tl.store(to + (H + column) * 2 * H + row, across, mask=inside)
    tl.store(to + (H + row) * 2 * H + H + column, lower, mask=inside)
