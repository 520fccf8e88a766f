"""The kernels on a GPU: speed against matrix products and stock attention, and exactness.

Run ``python -m benchmarks.gpu [--deadline SECONDS]`` (two minutes on an H200); what has not begun
by then is left out. Needs CUDA, torch and Triton. Useful operations are those of each key with each
slot that was open when it came, once. Kernels are called as they are, and then by the functions and
the layer that a user calls (`gpu_public`).
"""

# N streams, L tokens, K things that repeat, D key size

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn
from torch.nn.attention import sdpa_kernel

from distinctkv.kernels.nearest import COVERED
from distinctkv.kernels.slot_decode import step
from distinctkv.kernels.slot_prefill import read_first, read_mass
from distinctkv.nn.slot_state import SlotState

from . import device, gpu_public
from .common import table, verdict
from .device import BACKENDS, by_backend, clock, decided, differences, graph, stream, unit

TAU, D, HEADS, SCALE = 0.3, 128, 8, 8.0
TOKENS = 1 << 21  # of all streams together, when lengths are compared
ALLOCATIONS = ((256, 0.1), (256, 0.5), (8, 0.1))  # streams, noise
LENGTH, DISTINCT = 32768, 8192
LENGTHS = tuple(1 << power for power in range(12, 17))
CONTEXT, SLOTS = 65536, 16384
HARD = (  # key size, things, noise, tau; without noise a grid, where many distances tie
    (128, 700, 0.45, 0.3),
    (128, 700, 0.8, 0.4),
    (64, 300, 1.0, 0.5),
    (256, 300, 0.7, 0.3),
    (16, 300, 0.0, 0.15),
)
# The earlier plan, one processor for each stream: 40 % of its rate, and 2 us for each 128 tokens.
CHAIN_SHARE, CHAIN_STEP, CHAIN_TOKENS = 0.4, 2e-6, 128


def main() -> None:
    """Measure everything, keep it as JSON as it comes, print tables and what was reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--deadline", type=float, default=86400.0)
    parser.add_argument("--only", nargs="+", default=("",), help="parts, by how they begin")
    said = parser.parse_args()
    until = perf_counter() + said.deadline
    torch.manual_seed(0)
    facts, rate = device.stamp(), device.gemm()
    print(", ".join(facts.values()) + f"; bf16 product of 8192: {rate:.0f} TFLOP/s", flush=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, measure, cases in parts(rate):
        found[name] = []
        if not name.startswith(tuple(said.only)):
            continue
        for case in cases:
            row = attempt(measure, case, until)
            if row is not None:
                found[name].append(row)
                device.keep({"machine": facts, "product_tflops": rate, **found})
        if rows := found[name]:
            print("\n" + name)
            table(list(rows[0]), [[_show(cell) for cell in row.values()] for row in rows])
            print(flush=True)
    judge(found)


def parts(rate: float) -> list[tuple[str, Callable[..., dict[str, Any]], Iterable[Any]]]:
    """What is measured, the most wanted first."""
    streams = {length: TOKENS // length for length in LENGTHS}
    plain = [(N, L, 0.1) for L, N in streams.items()]
    noisy = [(streams[L], L, 0.5) for L in (8192, 32768)]
    return [
        ("functions, ms", gpu_public.functions, plain + noisy),
        ("layers, ms", gpu_public.layers, plain + noisy),
        ("steps, ms", gpu_public.steps, [(B, SLOTS) for B in (64, 8, 1)]),
        ("allocation", lambda *case: allocation(*case, rate), ALLOCATIONS),
        ("prefill, ms", prefill, [(length,) for length in LENGTHS]),
        ("decode, ms", decode, [(64,), (8,), (1,)]),
        ("exactness", exactness, HARD),
    ]


def attempt(
    measure: Callable[..., dict[str, Any]], case: tuple[Any, ...], until: float
) -> dict[str, Any] | None:
    """A row, or None and the reason: a failure must not cost what comes after it."""
    if perf_counter() > until:
        print(f"{case}: no time left", flush=True)
        return None
    try:
        return measure(*case)
    except Exception:
        traceback.print_exc()
        return None
    finally:
        torch.cuda.empty_cache()


def exactness(width: int, K: int, noise: float, tau: float) -> dict[str, Any]:
    """Decisions that differ from those of torch and the law, where novelty is near tau."""
    rows = stream(4, 5000, K, noise, width)
    if not noise:
        rows = unit((3 * torch.randn_like(rows)).round() + 1e-9)
    run = decided(rows, tau)
    about = {"slots": float(run.open.double().mean()), "again": _again(run)}
    differ = differences(run, rows, 4, tau)
    return {"D": width, "noise": noise, "tau": tau, **about, "differ": differ}


def allocation(N: int, noise: float, rate: float) -> dict[str, Any]:
    """Slots of N streams, a quarter of the tokens distinct; `with nearest`: the leaders' too."""
    rows = stream(N, LENGTH, DISTINCT, noise, D)
    run = decided(rows, TAU)
    useful = 2.0 * D * float(run.visible.double().sum())
    about = {"again": _again(run), "differ": differences(run, rows, 2, TAU)}
    del run

    def whole() -> None:
        run = decided(rows, TAU)
        run.nearest()

    ms = clock(lambda: decided(rows, TAU).assigned())
    one = CHAIN_SHARE * rate / device.processors()  # TFLOP/s
    chain = useful / N / one / 1e9 + 1e3 * CHAIN_STEP * LENGTH / CHAIN_TOKENS
    speed = {"ms": ms, "TFLOP/s": useful / ms / 1e9, "of product": useful / ms / 1e9 / rate}
    return {"streams": N, "noise": noise, **speed, "chain ms": chain,
            "with nearest ms": clock(whole), **about}  # fmt: skip


def prefill(L: int) -> dict[str, Any]:
    """Allocate and read L tokens, each thing four times, against attention to all of them."""
    N = TOKENS // L
    rows = stream(N, L, L // 4, 0.1, D)
    k = rows.unflatten(0, (-1, HEADS)).transpose(1, 2).bfloat16()
    q, v = torch.randn_like(k), torch.randn_like(k)
    heads = [x.transpose(1, 2) for x in (q, k, v)]

    def mass() -> Tensor:
        return read_mass(q, k, v, *_told(rows), SCALE)

    def first() -> Tensor:
        return read_first(q, k, v, *_told(rows), SCALE)

    alone = clock(lambda: decided(rows, TAU).assigned())
    times = {"allocate": alone, "and read mass": clock(mass), "and read first": clock(first)}
    times |= by_backend(
        lambda: fn.scaled_dot_product_attention(*heads, is_causal=True, scale=SCALE)
    )
    return {"L": L, "streams": N, **times, "mass off by": off_by(q, k, v, rows)}


def _told(rows: Tensor) -> tuple[Tensor, Tensor]:
    """What a read wants to know: the slot of each token, and the slots open when it came."""
    run = decided(rows, TAU)
    return run.assigned().slot, run.visible


def off_by(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> float:
    """Relative error of a mass read, for the last 256 tokens of one stream, from float32."""
    assign, visible = _told(rows[:HEADS])
    out = read_mass(q[:1], k[:1], v[:1], assign, visible, SCALE)[0, -256:, 0].float()
    lead = (assign[0] == visible[0]).nonzero()[:, 0]  # the token that opened each slot
    keys = k[0, lead[assign[0].long()], 0].float()
    logits = SCALE * q[0, -256:, 0].float() @ keys.T
    future = torch.ones_like(logits).triu(logits.shape[1] - 255) > 0
    want = logits.masked_fill(future, -torch.inf).softmax(-1) @ v[0, :, 0].float()
    return float((out - want).norm() / want.norm())


def decode(B: int) -> dict[str, Any]:
    """One token for each head: all tokens behind it, or the slots that they filled."""
    like: dict[str, Any] = {"device": device.DEVICE, "dtype": torch.bfloat16}
    q, key, value = (torch.randn(B, 1, HEADS, D, **like) for _ in "qkv")
    state = SlotState.empty(key, value, SLOTS + 64)
    state.keys.copy_(unit(torch.randn(SLOTS + 64, D, **like)))
    for buffer, fill in ((state.counts, 4), (state.n_slots, SLOTS)):
        buffer.fill_(fill)
    tau = torch.full((B, HEADS), TAU, dtype=torch.float64, device=device.DEVICE)
    key = unit(key)
    times = {"step": clock(graph(lambda: step(q, key, value, state, tau)))}
    held = {"slots": float(state.n_slots.double().mean())}
    heads = [torch.randn(B, HEADS, CONTEXT, D, **like) for _ in "kv"]
    query = q.transpose(1, 2)
    for name, backend in BACKENDS.items():
        with sdpa_kernel(backend):
            times[name] = clock(graph(lambda: fn.scaled_dot_product_attention(query, *heads)))
    return {"batch": B, "tokens": CONTEXT, **held, **times}


def judge(found: Mapping[str, list[dict[str, Any]]]) -> None:
    """Say which figures were reached."""
    for row in found["allocation"]:
        if row["streams"] == 256 and row["noise"] == 0.1:
            part = row["of product"]
            verdict(f"256 streams at half the rate of a product: {part:.0%}", part >= 0.5)
        if row["streams"] == 8:
            what = f"8 streams within twice the chain's {row['chain ms']:.1f} ms"
            verdict(f"{what}: {row['ms']:.1f} ms", row["ms"] <= 2 * row["chain ms"])
    for name in ("prefill, ms", "functions, ms"):
        for row in found[name]:
            if row["L"] >= 8192:
                ours, flash, cudnn = (row[at] for at in ("and read mass", "flash", "cudnn"))
                what = f"{name}: L = {row['L']}: {ours:.1f}, flash {flash:.1f}"
                verdict(f"{what} (cuDNN {cudnn:.1f})", ours < flash)
    for row in found["decode, ms"]:
        what = f"batch {row['batch']}: {row['step']:.3f} ms, flash {row['flash']:.3f} ms"
        verdict(what, row["step"] < row["flash"])
    looked = found["exactness"] + found["allocation"]
    differ = sum(row["differ"] for row in looked)
    if looked:
        verdict(f"every decision is the law's: {differ} differ", differ == 0)


def _again(run: Any) -> float:  # noqa: ANN401
    """Share of the tokens whose nearest slot had to be looked at again."""
    return float((run.states == COVERED.value).double().mean())


def _show(cell: float) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    main()
