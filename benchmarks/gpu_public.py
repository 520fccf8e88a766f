"""What `benchmarks.gpu` measures, by the way that a user goes: functions, and a whole layer."""

# N streams, L tokens, D key size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn

from distinctkv import Concentration
from distinctkv.nn import DistinctAttention, FullAttention, Heads
from distinctkv.nn.functional import SlotState, allocate, read, step

from .device import DEVICE, by_backend, clock, graph, stream, unit

HEADS, TAU, SCALE, ROUNDS = Heads(8, 128, taps=1), 0.3, 8.0, 5
WIDTH = HEADS.count * HEADS.size


@torch.no_grad()
def functions(N: int, L: int, noise: float) -> dict[str, Any]:
    """Milliseconds of `allocate` and `read` on 16-bit tensors, each thing four times."""
    rows = stream(N, L, max(1, L // 4), noise, HEADS.size)
    k = rows.unflatten(0, (-1, HEADS.count)).transpose(1, 2).bfloat16()
    q, v = torch.randn_like(k), torch.randn_like(k)
    heads = [x.transpose(1, 2) for x in (q, k, v)]

    def mass() -> Tensor:
        return read(q, k, v, allocate(k, TAU), scale=SCALE)

    def first() -> Tensor:
        return read(q, k, v, allocate(k, TAU), scale=SCALE, mode="distinct", value="first")

    found = allocate(k, TAU).check()
    return {
        "L": L,
        "noise": noise,
        "slots": float(found.n_slots.double().mean()),
        "allocate": clock(lambda: allocate(k, TAU), ROUNDS),
        "and read mass": clock(mass, ROUNDS),
        "and read first": clock(first, ROUNDS),
        **by_backend(
            lambda: fn.scaled_dot_product_attention(*heads, is_causal=True, scale=SCALE), ROUNDS
        ),
    }


@torch.no_grad()
def layers(N: int, L: int, noise: float) -> dict[str, Any]:
    """Milliseconds of a layer with its projections, under autocast, beside full attention."""
    rows = stream(max(1, N // HEADS.count), L, max(1, L // 4), noise, WIDTH)
    ours = DistinctAttention(WIDTH, HEADS, concentration=Concentration.fixed(TAU))
    ours = ours.to(DEVICE).eval()
    theirs = FullAttention(WIDTH, HEADS).to(DEVICE).eval()
    with torch.autocast(DEVICE, torch.bfloat16):
        times = {
            "distinct": clock(lambda: ours(rows), ROUNDS),
            **by_backend(lambda: theirs(rows), ROUNDS, "full, "),
        }
    share = ours.slots_per_token
    slots = 0.0 if share is None else L * float(share)
    return {"L": L, "noise": noise, "slots": slots, **times}


@torch.no_grad()
def steps(B: int, n_slots: int) -> dict[str, Any]:
    """Milliseconds of one token: `functional.step`, and a layer's, captured and launched."""
    like: dict[str, Any] = {"device": DEVICE, "dtype": torch.bfloat16}
    q, key, value = (torch.randn(B, 1, HEADS.count, HEADS.size, **like) for _ in "qkv")
    key, slots = unit(key), _filled(B, n_slots)
    by_function = clock(graph(lambda: step(q, key, value, slots, TAU)), ROUNDS)
    layer = DistinctAttention(WIDTH, HEADS, slot_dtype=torch.bfloat16).to(DEVICE).eval()
    x, state = torch.randn(B, WIDTH, device=DEVICE), layer.start(B)
    state.slots, state.most = _filled(B, n_slots), n_slots
    with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False):
        launched = clock(lambda: layer.step(x, state), ROUNDS)
        by_layer = clock(graph(lambda: layer.step(x, state)), ROUNDS)
    return {"batch": B, "slots": n_slots, "function": by_function, "layer": by_layer,
            "layer, launched": launched}  # fmt: skip


def _filled(B: int, n_slots: int) -> SlotState:
    """A state with so many slots, each of four tokens, and some room."""
    like = torch.zeros(B, 1, HEADS.count, HEADS.size, device=DEVICE, dtype=torch.bfloat16)
    state = SlotState.empty(like, like, n_slots + 64)
    state.keys.copy_(unit(torch.randn(n_slots + 64, HEADS.size, device=DEVICE)))
    for buffer, fill in ((state.counts, 4), (state.n_slots, n_slots)):
        buffer.fill_(fill)
    return state
