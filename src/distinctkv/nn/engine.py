"""One operator for allocation, opaque to compilers, and the engine that runs behind it.

An engine takes and gives flat tensors; `exact.allocate` says which. `exact` is torch and runs
anywhere. `kernels` is Triton: on CUDA it never waits for the device, which `exact` does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from . import exact

if TYPE_CHECKING:
    from .kernels.allocating import Run

Impl = Literal["auto", "torch", "triton"]
Answer = tuple[Tensor, Tensor, Tensor, Tensor]
Engine = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, int, int], Answer]

SCHEMA = (
    "(Tensor rows, Tensor tau, Tensor valid, Tensor? sequence, Tensor slots, Tensor n_slots, "
    "int capacity, int chunk, str impl) -> (Tensor, Tensor, Tensor, Tensor)"
)


def choose(impl: str, device: torch.device) -> Engine:
    """The engine to run: Triton on CUDA where it is installed, torch elsewhere."""
    if impl == "torch" or (impl == "auto" and device.type != "cuda"):
        return exact.allocate
    try:
        from .kernels.allocating import allocate as fast
    except ImportError as missing:
        if impl == "auto":
            _warn_once()
            return exact.allocate
        raise ImportError("impl='triton' needs Triton; it comes with torch for CUDA") from missing
    return fast


@cache
def _warn_once() -> None:
    warnings.warn("Triton is missing: allocation runs in torch, and waits", stacklevel=2)


def run(
    rows: Tensor,
    tau: Tensor,
    valid: Tensor,
    sequence: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: str,
) -> Answer:
    """What the chosen engine answers, in full precision whatever autocast says."""
    with torch.autocast(rows.device.type, enabled=False):
        engine = choose(impl, rows.device)
        return engine(rows, tau, valid, sequence, slots, n_slots, capacity, chunk)


def begin(
    keys: Tensor,
    tau: Tensor,
    mask: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    impl: str,
) -> Run | None:
    """What the kernels decide of keys (B, L, H, D), with nobody asked yet which slot is nearest.

    None where torch decides. ``tau`` (N,) may be nan, which refuses a stream's keys.
    """
    if choose(impl, keys.device) is exact.allocate:
        return None
    from .kernels.allocating import Room, Run
    from .kernels.bounds import WIDTHS
    from .kernels.laying import laid_out

    if keys.dtype == torch.float64 or keys.shape[3] not in WIDTHS:
        return None
    with torch.autocast(keys.device.type, enabled=False):
        laid, room = laid_out(keys, tau, mask), Room(slots, n_slots, capacity)
        return Run(laid.rows, tau.nan_to_num(0.0, inf, -inf), laid.valid, room, laid=laid)


def _shapes(rows: Tensor, *_: object) -> Answer:
    """Empty tensors like those `run` returns, for a compiler."""
    N, L, _D = rows.shape
    return (
        rows.new_empty(N, L, dtype=torch.bool),
        rows.new_empty(N, L, dtype=torch.int64),
        rows.new_empty(N, L),
        rows.new_empty(N, dtype=torch.int64),
    )


operator = torch.library.custom_op("distinctkv::allocate", run, mutates_args=(), schema=SCHEMA)
operator.register_fake(_shapes)
