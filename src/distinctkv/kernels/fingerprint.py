"""A sample of many tensors in one launch, for the fingerprint of a model."""

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# M parameters, N numbers of each


KINDS = {torch.float32: tl.int32, torch.bfloat16: tl.int16, torch.float16: tl.int16}


def takes(weight: Tensor) -> bool:
    """Whether its numbers can be read by their bits."""
    return weight.is_cuda and weight.dtype in KINDS and weight.is_contiguous()


def pick(addresses: Tensor, offsets: Tensor, kind: torch.dtype) -> Tensor:
    """The numbers of this kind at (M, N) offsets from (M,) addresses."""
    made = torch.empty(offsets.shape, dtype=kind, device=offsets.device)
    size = torch.int32 if kind.itemsize == 4 else torch.int16
    take[(len(offsets),)](
        addresses, offsets, made.view(size), N=offsets.shape[1], KIND=KINDS[kind], num_warps=1
    )
    return made


@triton.jit
def take(addresses, offsets, made, N: tl.constexpr, KIND: tl.constexpr):
    """The numbers of one parameter; grid (M,)."""
    row = tl.program_id(0)
    at = row * N + tl.arange(0, N)
    begin = tl.load(addresses + row).to(tl.pointer_type(KIND))
    tl.store(made + at, tl.load(begin + tl.load(offsets + at)))
