"""Train a small hybrid to recall, and watch its loss and its slots while it runs.

A Mamba-2 block carries the sequence, a block of slots recalls. Each of 12 items comes three times
in random order and is then asked for: 96 tokens, for which the cache keeps about 36 slots.
"""

import click
import numpy as np
from rich.console import Group
from rich.live import Live

try:
    import torch
except ImportError:
    raise SystemExit("this example needs torch: pip install '.[torch]'") from None

from distinctkv.nn import DistinctAttention, Heads, HybridLM, Mamba2
from distinctkv.nn.train import recall, sweep, train
from reproduction.data import SILENT, MQARTask

TASK = MQARTask(n_items=12, repeats=3, n_keys=48, n_values=48)


def curve(name: str, numbers: list[float], top: float) -> str:
    """One line: what it is, its course so far, where it stands."""
    parts = np.array_split(numbers, min(60, len(numbers)))
    bars = ["▁▂▃▄▅▆▇█"[min(7, int(8 * part.mean() / top))] for part in parts]
    return f"{name:>5} {''.join(bars):<60} {numbers[-1]:.2f}"


@click.command(help=f"{__doc__}\nSTEPS is 400 and SEED 0 if left out.")
@click.argument("steps", default=400)
@click.argument("seed", default=0)
def main(steps: int, seed: int) -> None:
    """Train, then read the one checkpoint at several thresholds."""
    torch.manual_seed(seed)
    rng, losses, slots, chance = np.random.default_rng(seed), [], [], np.log(TASK.n_values)
    layers = [Mamba2(64, states=16, head=32), DistinctAttention(64, Heads(1, 64))]
    model = HybridLM(TASK.vocabulary, 64, layers)
    drawn = (TASK.draw(rng, 20) for _ in range(steps))  # twenty fresh sequences for each step
    batches = ((torch.from_numpy(one.tokens), torch.from_numpy(one.targets)) for one in drawn)
    with Live() as live:
        for step in train(model, batches, steps=steps, rate=5e-3, chance=chance):
            losses.append(step.loss)
            slots.append(step.slots["blocks.1.mixer"] * TASK.n_tokens)
            live.update(Group(curve("loss", losses, chance), curve("slots", slots, TASK.n_tokens)))
    batch = TASK.draw(rng, 50)
    asked = np.where(batch.asked, batch.targets, SILENT)  # the queries at the end alone
    test = torch.from_numpy(batch.tokens), torch.from_numpy(asked)
    print(f"\nrecall {recall(model, *test):.3f} of {TASK.n_items} items")
    for tau, score, used in sweep(model, [0.0, 0.05, 0.15, 0.3], *test):
        print(f"  tau {tau:.2f}: recall {score:.3f} with {used * TASK.n_tokens:.1f} slots")


if __name__ == "__main__":
    main()
