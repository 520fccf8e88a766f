"""Models of study ``mqar`` and their training: a Mamba-2 block, then a block of another kind.

All are trained on sequences of a few items; `evaluate` then reads sequences of other numbers of
items and other lengths without training again. KVM-like and OVQ-like rules have a schedule of slots
that must be set before (`set_slots`).
"""

# N sequences, K items, r repeats, L tokens

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

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
from distinctkv.nn.baselines import KVMAttention, OVQAttention, ScheduledAttention
from distinctkv.nn.mixer import Mixer
from distinctkv.nn.train import Step, train

from ..data import SILENT, MQARTask

NAMES = (
    "mass", "first", "gated", "kvm", "ovq", "full", "window",
    "mamba2", "mamba2_wide", "delta", "delta_wide",
)  # fmt: skip
CHUNK = 512  # tokens read at a time
WIDE = 8  # factor of the state in the rows mamba2_wide and delta_wide


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the model, of its training, and the (items, tokens) it is evaluated on."""

    width: int
    head: int  # key size of each of the width / head heads
    states: tuple[int, int]  # of the backbone, and of a second block of its kind
    items: tuple[int, ...]  # one of them is drawn for each training step
    tokens: int
    steps: int
    batch: int
    n_keys: int
    n_values: int
    rate: float
    window: int
    asked: tuple[tuple[int, int], ...]  # (items, tokens) to evaluate; the first as in training
    taps: int = 4  # kernel size of the convolution before queries, keys and values; 1 is none
    lag: int = 1  # keys start as the token this many positions back; 0 is the token itself
    grow: float = 0.0  # fraction of the training over which larger `items` are added
    answered: float | None = None  # largest fraction of tokens with a loss
    chunk: int = 16  # tokens, of the rules with a schedule


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
class Score:
    """Recall of a model on one kind of sequence, and the size of its state at the end of it."""

    recall: float
    bytes: float  # per sequence, of both blocks
    slots: float  # per head of the second block; tokens, for attention


def make_model(name: str, size: Size) -> HybridLM:
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


def make_task(size: Size, items: int, tokens: int, **kind: int) -> MQARTask:
    """Sequences of that many items and tokens; ``kind`` sets ``renewed`` or ``siblings``."""
    each = tokens // (2 * items) - 1
    return MQARTask(items, each, n_keys=size.n_keys, n_values=size.n_values, **kind)


def train_model(
    make: Callable[[Size], HybridLM],
    seed: int,
    size: Size,
    place: str,
    slots_per_item: float,
    stop: Callable[[Step], bool] = lambda step: False,
) -> HybridLM:
    """A trained model; a rule with a schedule gets ``slots_per_item`` slots for each item.

    On a GPU sequences are drawn on the device, training steps are captured in a CUDA graph, and
    matrix products use TF32. ``stop`` is called with twenty of the steps and may end the training.
    """
    torch.manual_seed(seed)
    model = make(size).to(place)
    set_slots(model, max(size.items) * slots_per_item, size.tokens)
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
        if stop(step):
            break
    torch.set_float32_matmul_precision("highest")
    return model.eval()


def set_slots(model: HybridLM, n_slots: float, tokens: int) -> None:
    """Set the slots of a rule with a schedule, at most one per token; other models stay as is."""
    mixer = model.mixers[1]
    if isinstance(mixer, ScheduledAttention):
        mixer.fit(min(ceil(n_slots), tokens - 1), tokens)


def slots_for(model: HybridLM, n_bytes: float) -> float:
    """Slots per head that a rule with a schedule can hold in ``n_bytes``; 0 for other models."""
    mixer = model.mixers[1]
    if not isinstance(mixer, ScheduledAttention):
        return 0.0
    heads = mixer.project.heads
    slot = 4 * (2 * heads.size + 1)  # sums of keys and values, and a count
    return (n_bytes - model.start(1).nbytes) / (heads.count * slot)


@torch.no_grad()
def evaluate(model: HybridLM, rng: np.random.Generator, task: MQARTask, n: int) -> Score:
    """Recall at the queries of ``n`` sequences, read chunk by chunk, and the size of the state."""
    drawn = task.draw(rng, n)
    tokens = torch.from_numpy(drawn.tokens).to(model.embed.weight.device)
    state = model.start(n)
    answers = [model(chunk, state).argmax(-1) for chunk in torch.split(tokens, CHUNK, 1)]
    right = torch.cat(answers, 1).cpu().numpy() == np.where(drawn.asked, drawn.targets, SILENT)
    return Score(float(right[drawn.asked].mean()), state.nbytes / n, _slots(state.blocks[1]))


def _slots(state: Any) -> float:  # noqa: ANN401
    """Slots per head, tokens of an attention, 0 for a state with neither."""
    if hasattr(state, "slots"):
        return float(state.slots.n_slots.float().mean())
    if hasattr(state, "counts"):
        return float(state.counts.shape[2] + state.tail_keys.shape[2])
    return float(state.keys.shape[1]) if hasattr(state, "keys") else 0.0


# Training sequences


def batches(seed: int, size: Size, place: str) -> Iterator[tuple[Tensor, Tensor]]:
    """An endless iterator of (tokens, targets); a seed gives every model the same ones."""
    rng, generator = np.random.default_rng(seed), torch.Generator(place).manual_seed(seed)
    for number in count():
        items = n_items(rng, size, number / size.steps)
        task = MQARTask(items, size.tokens // (2 * items) - 1, size.n_keys, size.n_values)
        if place == "cpu":
            drawn = task.draw(rng, size.batch)
            yield torch.from_numpy(drawn.tokens), torch.from_numpy(drawn.targets)
        else:
            yield draw(task, size.batch, generator)


def n_items(rng: np.random.Generator, size: Size, done: float) -> int:
    """Items of the next step: at first the fewest alone; larger numbers are added one by one."""
    n_kinds = len(size.items)
    if done < size.grow:
        n_kinds = 1 + int(n_kinds * done / size.grow)
    return int(rng.choice(size.items[:n_kinds]))


def draw(task: MQARTask, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As `MQARTask.draw`, on the generator's device; without ``renewed`` and ``siblings``.

    >>> tokens, targets = draw(MQARTask(2, 2, 4, 4), 3, torch.Generator().manual_seed(0))
    >>> tokens.shape, (targets != SILENT).sum(1).tolist()
    (torch.Size([3, 12]), [4, 4, 4])
    """
    place = generator.device

    def shuffled(many: int, few: int) -> Tensor:
        """The first few of so many, in random order, (N, few)."""
        return torch.rand(n, many, device=place, generator=generator).argsort(1)[:, :few]

    K, n_context = task.n_items, task.n_items * task.repeats
    names = 1 + shuffled(task.n_keys, K)
    values = torch.randint(task.n_values, (n, K), device=place, generator=generator)
    context = shuffled(n_context, n_context) % K
    items = torch.cat([context, shuffled(K, K)], 1)
    bound = values.gather(1, items) + 1 + task.n_keys  # the value token of each occurrence
    turn = torch.arange(items.shape[1], device=place)
    first = torch.full_like(names, items.shape[1])
    first = first.scatter_reduce(1, items, turn.expand_as(items), "amin")
    silent = torch.full_like(bound, SILENT)
    answers = torch.where(first.gather(1, items) == turn, silent, bound)
    shown = torch.where(turn < n_context, bound, 0)
    tokens = torch.stack([names.gather(1, items), shown], -1).flatten(1)
    return tokens, torch.stack([answers, silent], -1).flatten(1)
