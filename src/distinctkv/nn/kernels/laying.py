"""Keys as a user has them, laid out stream by stream in one pass, and looked at on the way."""

# B batch, L tokens, H heads, D key size, N = B H streams, R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .bounds import LENGTHS


class Laid(NamedTuple):
    """Keys stream by stream, by `lay_out`: (N, L, D) twice, (N, L), and (N,) twice."""

    rows: Tensor
    halved: Tensor
    valid: Tensor
    strays: Tensor
    refused: Tensor


def laid_out(keys: Tensor, tau: Tensor, mask: Tensor | None) -> Laid:
    """Streams from keys (B, L, H, D), tau (N,) and a mask (B, L), read once and copied."""
    B, L, H, D = keys.shape
    keys = keys if keys.stride(3) == 1 else keys.contiguous()
    rows = keys.new_empty(B * H, L, D, dtype=torch.float32)
    halved = torch.empty_like(rows, dtype=torch.float16)
    valid = torch.empty_like(rows[..., 0], dtype=torch.int8)
    strays, refused = torch.zeros(2, B * H, dtype=torch.int32, device=keys.device)
    real = valid if mask is None else mask.to(torch.int8).contiguous()
    known = (~tau.isnan()).to(torch.int8)
    lay_out[(triton.cdiv(L, 64), B * H)](
        keys, real, known, rows, halved, valid, strays, refused, L, H, *keys.stride()[:3],
        LENGTHS[0] ** 2, LENGTHS[1] ** 2, MASKED=mask is not None, D=D, R=64,
    )  # fmt: skip
    return Laid(rows, halved, valid, strays, refused)


@triton.jit
def lay_out(
    keys,  # (B, L, H, D), floats of 16 or 32 bits, rows in one piece each
    mask,  # (B, L): 0 where padding; not looked at unless MASKED
    known,  # (N,): 0 where tau is nan
    rows,  # (N, L, D) float32: the keys go here
    halved,  # (N, L, D) float16: and here
    valid,  # (N, L): 1 for real tokens whose keys have length one
    strays,  # (N,): as by `prepare`
    refused,  # (N,): real tokens whose keys have not, or whose tau is nan
    L,
    H,
    to_stream,
    to_token,
    to_head,
    least,  # squared lengths that pass for one
    most,
    MASKED: tl.constexpr,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """Keys stream by stream, and what `prepare` finds, in one pass; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = block * R + tl.arange(0, R)
    place = stream.to(tl.int64) * L + token
    inside = token < L
    batch, head = (stream // H).to(tl.int64), (stream % H).to(tl.int64)
    d = tl.arange(0, D)[None, :]
    given = keys + batch * to_stream + head * to_head
    mine = tl.load(
        given + token.to(tl.int64)[:, None] * to_token + d, mask=inside[:, None], other=0.0
    )
    mine = mine.to(tl.float32)
    tl.store(rows + place[:, None] * D + d, mine, mask=inside[:, None])
    tl.store(halved + place[:, None] * D + d, mine.to(tl.float16), mask=inside[:, None])
    square = tl.sum(mine * mine, 1)
    good = (square > least) & (square < most) & (tl.load(known + stream) > 0)
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + batch * L + token, mask=inside, other=0) > 0)
    tl.store(valid + place, (real & good).to(tl.int8), mask=inside)
    stray = tl.where(real & good, tl.abs(square - 1) / 2, 0.0)
    tl.atomic_max(strays + stream, tl.max(stray, 0).to(tl.int32, bitcast=True))
    tl.atomic_add(refused + stream, tl.sum((real & (good == 0)).to(tl.int32), 0))
