"""What the GPU benchmark measures with: streams made on the device, its clock, its stamp."""

# N streams, L tokens, K things that repeat, D key size

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from distinctkv.kernels.allocate import Room, Run
from distinctkv.nn import leaders

from .common import OUT

DEVICE = "cuda"
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def stream(N: int, L: int, K: int, noise: float, width: int) -> Tensor:
    """N streams of L keys, in random order: K things, each a bit different each time."""
    rows = torch.empty(N, L, width, device=DEVICE)
    for one in rows:
        things = unit(torch.randn(K, width, device=DEVICE))
        picks = torch.randperm(L, device=DEVICE) % K
        one.copy_(unit(things[picks] + noise * width**-0.5 * torch.randn_like(one)))
    return rows


def unit(rows: Tensor) -> Tensor:
    """Rows of length one."""
    return rows / rows.norm(dim=-1, keepdim=True)


def decided(rows: Tensor, tau: float) -> Run:
    """The allocation of streams (N, L, D) that start empty."""
    taus, valid, *room = _told(rows, tau)
    return Run(rows, taus, valid, Room(*room))


def differences(run: Run, rows: Tensor, n: int, tau: float) -> int:
    """Leads and nearest slots of the first n streams that are not those of torch and the law."""
    taus, valid, *room = _told(rows[:n], tau)
    lead, nearest, _, _ = leaders.allocate(rows[:n], taus, valid, None, *room, 1024)
    return int((run.leads()[:n] != lead).sum() + (run.nearest()[:n] != nearest).sum())


def _told(rows: Tensor, tau: float) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    N, L, _ = rows.shape
    none = torch.zeros(N, dtype=torch.int64, device=DEVICE)
    valid = torch.ones(N, L, dtype=torch.bool, device=DEVICE)
    return torch.full_like(none, tau, dtype=torch.float64), valid, rows[:, :0], none, L


def clock(run: Callable[[], Any], rounds: int = 7) -> float:
    """Milliseconds on the device: the median of some rounds, after one that builds the kernels."""
    run()
    times = []
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return float(sorted(times)[rounds // 2])


def by_backend(run: Callable[[], Any], rounds: int = 7, name: str = "") -> dict[str, float]:
    """Milliseconds of ``run`` with stock attention by flash, and by cuDNN."""
    times = {}
    for backend, kind in BACKENDS.items():
        with sdpa_kernel(kind):
            times[name + backend] = clock(run, rounds)
    return times


def graph(run: Callable[[], Any]) -> Callable[[], None]:
    """The launches of ``run``, captured: for work so short that launching it takes longer."""
    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        run()
    return captured.replay


def gemm(size: int = 8192) -> float:
    """TFLOP/s of a large product in bfloat16."""
    a, b = torch.randn(2, size, size, device=DEVICE, dtype=torch.bfloat16)
    return 2.0 * size**3 / clock(lambda: a @ b) / 1e9


def processors() -> int:
    """Multiprocessors of the device."""
    return torch.cuda.get_device_properties(0).multi_processor_count


def stamp() -> dict[str, str]:
    """Date, device and versions."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def keep(result: dict[str, Any]) -> None:
    """Write the result to the folder ``$OUT``, or where the other benchmarks write."""
    folder = Path(os.environ.get("OUT", OUT))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
