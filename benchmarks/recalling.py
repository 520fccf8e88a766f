"""Models trained on redundant recall: a Mamba-2 block, then a block of another kind.

They are trained on sequences of up to 64 items, and asked for more of them and over longer
sequences without training again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from distinctkv.data.mqar import SILENT, MQARTask
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
from distinctkv.nn.training import train

NAMES = ("ssm", "delta", "window", "full", "distinct", "gated")


@dataclass(frozen=True, slots=True)
class Size:
    """How large it is run: the model, its training, and (items, tokens) to ask for."""

    width: int
    states: int
    items: tuple[int, ...]  # of a training step, drawn anew for each
    tokens: int
    steps: int
    batch: int
    n_keys: int
    rate: float
    asked: tuple[tuple[int, int], ...]


SIZE = Size(
    128, 64, (4, 8, 16, 32, 64), 512, 2000, 64, 4096, 3e-3,
    ((64, 512), (64, 4096), (128, 4096), (256, 4096), (512, 4096), (1024, 8192), (2048, 16384)),
)  # fmt: skip
PIECE = 512  # tokens at a time when a long sequence is read


@dataclass(frozen=True, slots=True)
class Found:
    """What a model recalls of one kind of sequence, and what it holds at the end of it."""

    recall: float
    kilobytes: float
    slots: float  # of a head, in the second block


def measure(name: str, seed: int, one: Size) -> list[Found]:
    """One model, trained, then asked for each of the kinds in turn."""
    torch.manual_seed(seed)
    place = "cuda" if torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(seed)
    model = made(name, one).to(place)
    for _ in train(
        model, batches(rng, one, place), steps=one.steps, rate=one.rate, every=one.steps
    ):
        pass
    return [ask(model.eval(), rng, one, items, tokens) for items, tokens in one.asked]


def made(name: str, one: Size) -> HybridLM:
    """A fresh model."""
    width, heads = one.width, Heads(max(1, one.width // 64), 64)
    makes: Mapping[str, Callable[[], Mixer[Any]]] = {
        "ssm": lambda: Mamba2(width, states=one.states, head=min(64, width // 2)),
        "delta": lambda: GatedDeltaNet(width),
        "window": lambda: SlidingWindowAttention(width, heads, window=128),
        "full": lambda: FullAttention(width, heads),
        "distinct": lambda: DistinctAttention(width, heads),
        "gated": lambda: DistinctAttention(
            width, heads, reading=Reading(window=1), gate=WriteGate(width)
        ),
    }
    backbone = Mamba2(width, states=one.states, head=min(64, width // 2))
    return HybridLM(
        task(one, one.items[0], one.tokens).vocabulary, width, [backbone, makes[name]()]
    )


def task(one: Size, items: int, tokens: int) -> MQARTask:
    """Sequences of so many items and tokens."""
    n_values = min(1024, one.n_keys)
    return MQARTask(items, tokens // (2 * items) - 1, n_keys=one.n_keys, n_values=n_values)


def batches(
    rng: np.random.Generator, one: Size, place: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Fresh sequences for ever."""
    while True:
        drawn = task(one, int(rng.choice(one.items)), one.tokens).draw(rng, one.batch)
        yield torch.from_numpy(drawn.tokens).to(place), torch.from_numpy(drawn.targets).to(place)


def ask(model: HybridLM, rng: np.random.Generator, one: Size, items: int, tokens: int) -> Found:
    """Recall at the queries, the sequence read piece by piece into a state that is then weighed."""
    n = 4 if tokens > PIECE else 32
    drawn = task(one, items, tokens).draw(rng, n)
    place = next(model.parameters()).device
    given = torch.from_numpy(drawn.tokens).to(place)
    state = model.start(n)
    with torch.no_grad():
        said = torch.cat(
            [model(part, state).argmax(-1) for part in torch.split(given, PIECE, 1)], 1
        )
    right = said.cpu().numpy() == np.where(drawn.asked, drawn.targets, SILENT)
    held = [getattr(block, "filled_nbytes", block.nbytes) for block in state.blocks]
    slots = getattr(state.blocks[-1], "slots", None)
    return Found(
        recall=float(right[drawn.asked].mean()),
        kilobytes=sum(held) / n / 1024,
        slots=float(slots.n_slots.float().mean()) if slots is not None else 0.0,
    )
