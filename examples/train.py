"""Train a small hybrid to recall, and watch its loss and its slots while it runs.

A Mamba-2 block carries the sequence, a block of slots recalls. Each of 12 items comes three times
in random order and is then asked for: 96 tokens, for which the cache keeps about 36 slots.
"""

import math
import sys
from collections.abc import Iterator

import numpy as np
import torch
from rich.console import Group
from rich.live import Live

from distinctkv.data.mqar import SILENT, MQARTask
from distinctkv.nn import DistinctAttention, Heads, HybridLM, Mamba2
from distinctkv.nn.training import recall, sweep, train

TASK = MQARTask(n_items=12, repeats=3, n_keys=48, n_values=48)


def batches(rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Twenty fresh sequences at a time, for ever."""
    while True:
        batch = TASK.draw(rng, 20)
        yield torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets)


def curve(name: str, numbers: list[float], top: float, width: int = 60) -> str:
    """One line: what it is, its course so far, where it stands."""
    parts = np.array_split(numbers, min(width, len(numbers)))
    bars = ["▁▂▃▄▅▆▇█"[min(7, int(8 * part.mean() / top))] for part in parts]
    return f"{name:>5} {''.join(bars):<{width}} {numbers[-1]:.2f}"


def main(steps: int = 400, seed: int = 0) -> None:
    """Train, then read the one checkpoint at several thresholds."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    backbone, cache = Mamba2(64, states=16, head=32), DistinctAttention(64, Heads(1, 64))
    model = HybridLM(TASK.vocabulary, 64, [backbone, cache])
    losses, slots, chance = [], [], math.log(TASK.n_values)
    with Live() as live:
        for step in train(model, batches(rng), steps=steps, rate=5e-3, chance=chance):
            losses.append(step.loss)
            slots.append(step.slots["blocks.1.mixer"] * TASK.n_tokens)
            live.update(Group(curve("loss", losses, chance), curve("slots", slots, TASK.n_tokens)))
    batch = TASK.draw(rng, 50)
    asked = np.where(batch.asked, batch.targets, SILENT)
    tokens, targets = torch.from_numpy(batch.tokens), torch.from_numpy(asked)
    print(f"\nrecall {recall(model, tokens, targets):.3f} of {TASK.n_items} items")
    for tau, score, used in sweep(model, [0.0, 0.05, 0.15, 0.3], tokens, targets):
        print(f"  tau {tau:.2f}: recall {score:.3f} with {used * TASK.n_tokens:.1f} slots")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
