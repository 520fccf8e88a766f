"""Models trained on redundant recall, and asked: a Mamba-2 block, then a block of another kind.

All are trained alike on sequences of a few items, and asked for other numbers of items in other
lengths without training again. KVM-like and OVQ-like rules are given the slots that ours opened.
"""

# N sequences, K items, L tokens

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch

from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    GatedDeltaNet,
    Heads,
    HybridLM,
    Mamba2,
    Reading,
    SlidingWindowAttention,
    WriteGate,
)
from distinctkv.nn.mixer import Mixer
from distinctkv.nn.scheduled import KVMAttention, OVQAttention, ScheduledAttention
from distinctkv.nn.training import Step, train

from ..data.mqar import SILENT, MQARTask
from .mqar_drawing import batches

NAMES = (
    "mass", "first", "gated", "kvm", "ovq", "full", "window",
    "mamba2", "mamba2_wide", "delta", "delta_wide",
)  # fmt: skip
PIECE = 512  # tokens at a time when a long sequence is read
WIDE = 8  # times the state of a fixed state that is to hold as much as many slots


@dataclass(frozen=True, slots=True)
class Size:
    """How large it is run: the model, its training, and the (items, tokens) to ask for."""

    width: int
    head: int  # numbers of a key, in each of width / head heads
    states: tuple[int, int]  # of the backbone, and of a second block of its kind
    items: tuple[int, ...]  # of a training step, drawn anew for each
    tokens: int
    steps: int
    batch: int
    n_keys: int
    n_values: int
    rate: float
    window: int
    asked: tuple[tuple[int, int], ...]  # the first as in training
    taps: int = 4  # of the convolution before queries, keys and values; 1 is none
    lag: int = 1  # keys start as the token so many places before theirs; 0 is the token itself
    grow: float = 0.0  # part of the training over which more items come in, the fewest first
    answered: float | None = None  # part of the tokens at which the loss is taken, at most
    chunk: int = 16  # of rules with a schedule


SMALL = Size(
    32, 32, (16, 32), (4, 8), 64, 250, 16, 48, 16, 1e-2, 16,
    ((8, 64), (8, 256), (16, 128), (32, 256), (48, 384), (8, 32), (32, 128)),
)  # fmt: skip
LARGE = Size(
    128, 64, (64, 64), (4, 8, 16, 32, 64), 512, 2000, 32, 4096, 1024, 3e-3, 128,
    ((64, 512), (64, 4096), (128, 1024), (512, 4096), (2048, 16384), (64, 256), (512, 2048)),
    grow=0.3, answered=0.25, chunk=64,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """What a model recalls of one kind of sequence, and what it holds at the end of it."""

    recall: float
    bytes: float  # of a sequence, both blocks
    slots: float  # of a head in the second block; tokens, for attention


def made(name: str, size: Size) -> HybridLM:
    """A fresh model."""
    width, inner = size.width, min(64, size.width)
    heads = Heads(size.width // size.head, size.head, size.taps, lag=size.lag)
    makes: Mapping[str, Callable[[], Mixer[Any]]] = {
        "mamba2": lambda: Mamba2(width, states=size.states[1], head=inner),
        "mamba2_wide": lambda: Mamba2(width, states=WIDE * size.states[1], head=inner, chunk=256),
        "delta": lambda: GatedDeltaNet(width, key=inner, value=2 * inner),
        "delta_wide": lambda: GatedDeltaNet(width, key=WIDE * inner // 2, value=4 * inner),
        "window": lambda: SlidingWindowAttention(width, heads, window=size.window),
        "full": lambda: FullAttention(width, heads),
        "mass": lambda: DistinctAttention(width, heads),
        "first": lambda: DistinctAttention(width, heads, reading=Reading("distinct", "first")),
        "gated": lambda: DistinctAttention(
            width, heads, reading=Reading(window=1), gate=WriteGate(width)
        ),
        "kvm": lambda: KVMAttention(width, heads, chunk=size.chunk),
        "ovq": lambda: OVQAttention(width, heads, chunk=size.chunk),
    }
    backbone = Mamba2(width, states=size.states[0], head=inner)
    return HybridLM(1 + size.n_keys + size.n_values, width, [backbone, makes[name]()])


def task(size: Size, items: int, tokens: int, **kind: int) -> MQARTask:
    """Sequences of so many items and tokens; ``kind`` may overwrite, or make near-duplicates."""
    each = tokens // (2 * items) - 1
    return MQARTask(items, each, n_keys=size.n_keys, n_values=size.n_values, **kind)


def trained(
    name: str,
    seed: int,
    size: Size,
    place: str,
    each: float,
    shown: Callable[[Step], bool] = lambda step: False,
) -> HybridLM:
    """A model after training; a rule with a schedule has ``each`` slots for an item, at most.

    On a GPU sequences are drawn there and steps are captured, so that nothing waits for launches,
    and products of 32 bits round to 19. ``shown`` sees twenty steps, and may end the training.
    """
    torch.manual_seed(seed)
    model = made(name, size).to(place)
    fit(model, max(size.items) * each, size.tokens)
    torch.set_float32_matmul_precision("high" if place == "cuda" else "highest")
    for step in train(
        model,
        batches(seed, size, place),
        steps=size.steps,
        rate=size.rate,
        every=max(1, size.steps // 20),
        captured=place == "cuda",
        asked=size.answered,
    ):
        if shown(step):
            break
    torch.set_float32_matmul_precision("highest")
    return model.eval()


def fit(model: HybridLM, n_slots: float, tokens: int) -> None:
    """Give a rule with a schedule so many slots, one for a token at most; others are left alone."""
    mixer = model.mixers[1]
    if isinstance(mixer, ScheduledAttention):
        mixer.fit(min(ceil(n_slots), tokens - 1), tokens)


def slots_in(model: HybridLM, n_bytes: float) -> float:
    """How many slots a head of a rule with a schedule has in so many bytes; 0 for others."""
    mixer = model.mixers[1]
    if not isinstance(mixer, ScheduledAttention):
        return 0.0
    heads = mixer.project.heads
    slot = 4 * (2 * heads.size + 1)  # sums of keys and values, and a count
    return (n_bytes - model.start(1).nbytes) / (heads.count * slot)


@torch.no_grad()
def ask(model: HybridLM, rng: np.random.Generator, drawn_from: MQARTask, n: int) -> Found:
    """Recall at the queries, the sequence read piece by piece into a state that is then weighed."""
    drawn = drawn_from.draw(rng, n)
    given = torch.from_numpy(drawn.tokens).to(model.embed.weight.device)
    state = model.start(n)
    said = [model(part, state).argmax(-1) for part in torch.split(given, PIECE, 1)]
    right = torch.cat(said, 1).cpu().numpy() == np.where(drawn.asked, drawn.targets, SILENT)
    return Found(float(right[drawn.asked].mean()), state.nbytes / n, _slots(state.blocks[1]))


def _slots(state: Any) -> float:  # noqa: ANN401
    """Slots of a head, tokens of an attention, 0 of a state without either."""
    if hasattr(state, "slots"):
        return float(state.slots.n_slots.float().mean())
    if hasattr(state, "counts"):
        return float(state.counts.shape[2] + state.tail_keys.shape[2])
    return float(state.keys.shape[1]) if hasattr(state, "keys") else 0.0
