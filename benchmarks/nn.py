"""Allocation in chunks against loops over tokens, on the CPU: `python -m benchmarks.nn`.

Three loops: the law itself (`distinctkv.rule`), torch one stream at a time, and torch with all
streams in each step, which is the best that a loop can do. The torch loops are plain: they trust
their products, which is enough here, where no distance is near tau. All must agree on every slot.
"""

# B streams, L tokens, K items, D key size, S slots

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distinctkv import Concentration, Rule
from distinctkv.nn.functional import SlotState, allocate, read, step, unit

from .common import keep, race, stamp, table, verdict

B, L, K, D = 8, 4096, 256, 64
TAU, NOISE, AIM = 0.3, 0.25, 30.0


def draw(n_tokens: int, seed: int = 0) -> Tensor:
    """Keys (B, L, 1, D): every stream repeats K things of its own, each time a bit different."""
    random = torch.Generator().manual_seed(seed)
    things = torch.randn(B, K, D, generator=random)
    which = torch.randint(0, K, (B, n_tokens, 1), generator=random).expand(-1, -1, D)
    noise = torch.randn(B, n_tokens, D, generator=random)
    return unit(things.gather(1, which) + NOISE * noise)[:, :, None]


def by_rule(keys: Tensor) -> Tensor:
    """Slots by the law, token by token."""
    ids = []
    for stream in keys[:, :, 0].numpy():
        rule = Rule(Concentration.fixed(TAU))
        ids.append([rule.write(key) for key in stream])
    return torch.tensor(np.array(ids))


def one_by_one(keys: Tensor) -> Tensor:
    """Slots by a loop over streams and their tokens."""
    return torch.cat([all_at_once(stream[None]) for stream in keys])


def all_at_once(keys: Tensor) -> Tensor:
    """Slots by a loop over tokens, all streams in each step."""
    rows = keys[:, :, 0]
    n, most = rows.shape[:2]
    slots, used = torch.zeros(n, most, D), 0
    n_slots, stream = torch.zeros(n, dtype=torch.int64), torch.arange(n)
    places, ids = torch.arange(most), []
    for t in range(most):
        key = rows[:, t]
        sims = (slots[:, : used + 1] @ key[..., None])[..., 0]
        sims = sims.masked_fill(places[: used + 1] >= n_slots[:, None], -2.0)
        best, nearest = sims.max(1)
        novel = 1 - best > TAU
        slot = torch.where(novel, n_slots, nearest)
        slots[stream, slot] = torch.where(novel[:, None], key, slots[stream, slot])
        n_slots = n_slots + novel
        used = int(n_slots.max())
        ids.append(slot)
    return torch.stack(ids, 1)


def in_chunks(keys: Tensor) -> Tensor:
    """Slots by `allocate`."""
    return allocate(keys, TAU).assign[:, :, 0]


def decode(keys: Tensor, tokens: int) -> SlotState:
    """Steps through the first tokens."""
    state = SlotState.empty(keys, keys, 2 * K)
    for part in keys[:, :tokens].split(1, 1):
        _, state = step(part, part, part, state, TAU)
    return state


def reads(keys: Tensor) -> list[dict[str, Any]]:
    """Seconds of reads of the whole, and of decoding."""
    found = allocate(keys, TAU)
    steps = min(200, keys.shape[1])
    with torch.no_grad():
        runs = {
            "read, mass": partial(read, keys, keys, keys, found),
            "read, distinct": partial(read, keys, keys, keys, found, mode="distinct"),
            "read, distinct, first": partial(
                read, keys, keys, keys, found, mode="distinct", value="first"
            ),
            f"{steps} steps": partial(decode, keys, steps),
        }
        return [{"name": name} | run.rate(B * L) for name, run in race(runs, rounds=3).items()]


def main() -> None:
    """Time them, compare their slots, and say whether the aim is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=L, help="tokens of each stream")
    n_tokens = parser.parse_args().tokens
    torch.set_num_threads(1)
    facts = stamp("torch")
    keys = draw(n_tokens)
    runs = {
        "in chunks": partial(in_chunks, keys),
        "loop, all streams at once": partial(all_at_once, keys),
        "loop, one stream at a time": partial(one_by_one, keys),
        "the rule": partial(by_rule, keys),
    }
    raced = race(runs, rounds=3)
    ours = raced["in chunks"]
    rows = []
    for name, run in raced.items():
        equal = float((run.result == ours.result).float().mean())
        rows.append({"name": name, "same_slots": equal} | run.rate(B * n_tokens))
    print(f"{B} streams x {n_tokens} tokens x {D}, {K} items, tau {TAU}, float32, one thread")
    cells = [
        [
            row["name"],
            f"{row['wall']:.3f}",
            f"{row['cpu']:.3f}",
            f"{row['cpu'] / rows[0]['cpu']:.1f}x",
            f"{row['same_slots']:.4f}",
        ]
        for row in rows
    ]
    table(["allocation", "wall s", "CPU s", "slower", "same slots"], cells)
    more = reads(keys)
    table(["also", "CPU s"], [[row["name"], f"{row['cpu']:.3f}"] for row in more])
    slower = rows[-1]["cpu"] / rows[0]["cpu"]
    same = all(row["same_slots"] == 1 for row in rows)
    met = verdict(f"{slower:.0f}x the rule, token by token; aim {AIM:.0f}x", slower >= AIM and same)
    keep("nn", facts | {"allocation": rows, "reads": more, "met": met})


if __name__ == "__main__":
    main()
