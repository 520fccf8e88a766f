"""What one would pick instead for distinct things in a stream, its quality beside its speed.

Each baseline first tries a few settings on another stream of the same kind and keeps the best. Its
learning alone is timed; then every token is given to its nearest centre. Ours is timed with all it
does. Run ``python -m benchmarks.peers`` (minutes), or with ``--quick``.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration

from .clusterers import BASELINES, Baseline, Setting
from .common import Ints, Rows, Stream, chunks, draw, keep, race, short, stamp, table, timed, write

N_ITEMS, TAU = 1_000, 0.5
Result = dict[str, Any]


def quality(slots: Ints, n_slots: int, items: Ints) -> tuple[float, float]:
    """Slots per item, and recall: the share of tokens whose slot is mostly of their own item."""
    pairs, counts = np.unique(np.stack([slots, items]), axis=1, return_counts=True)
    owner = dict(pairs.T[np.argsort(counts, kind="stable")].tolist())
    recall = np.mean([owner[slot] == item for slot, item in zip(slots, items, strict=True)])
    return n_slots / len(np.unique(items)), float(recall)


def nearest(rows: Rows, centres: Rows) -> Ints:
    """Nearest centre of each row by Euclidean distance."""
    half = (centres * centres).sum(axis=1) / 2
    return np.concatenate(
        [(rows[part] @ centres.T - half).argmax(axis=1) for part in chunks(len(rows))]
    )


def tune(baseline: Baseline, width: int) -> Setting:
    """The setting that is best on a stream of its own: high recall, and not by many slots."""

    def score(setting: Setting) -> float:
        centres = baseline.learn(trial.rows, **setting)
        spent, recall = quality(nearest(trial.rows, centres), len(centres), trial.items)
        return recall / max(1.0, spent)

    trial = draw(baseline.trial, N_ITEMS, width, seed=1)
    return max(baseline.settings, key=score)


def measure(stream: Stream) -> list[Result]:
    """Ours, and every baseline that is installed, on one stream."""
    width = stream.rows.shape[1]
    run = race({"ours": partial(ours, stream.rows, TAU)})["ours"]
    ids, n_slots = run.result
    spent, recall = quality(ids, n_slots, stream.items)
    sizes = {"D": width, "N": len(stream)}
    rate = run.rate(len(stream))
    found = [{"name": "ours", "setting": {"tau": TAU}, "slots_per_item": spent, "recall": recall}]
    found[0] |= sizes | rate | {"ours_is_faster": 1.0}
    for baseline in BASELINES:
        if not find_spec(baseline.module):
            print(f"  {baseline.name} is not installed")
            continue
        setting, part = tune(baseline, width), stream[: baseline.tokens]
        centres, time = timed(partial(baseline.learn, part.rows, **setting))
        spent, recall = quality(nearest(part.rows, centres), len(centres), part.items)
        theirs = time.rate(len(part))
        one = {"name": baseline.name, "setting": setting, "slots_per_item": spent, "recall": recall}
        one["ours_is_faster"] = rate["tokens_per_s"] / theirs["tokens_per_s"]
        found.append(one | sizes | {"N": len(part)} | theirs)
        print(f"  {baseline.name}: {short(theirs['tokens_per_s'])} tokens/s", flush=True)
    return found


def ours(rows: Rows, tau: float) -> tuple[Ints, int]:
    """Slot ids, and how many slots there are."""
    cache = Cache(Concentration.fixed(tau))
    return write(cache, rows), len(cache)


def by_bytes(rows: Rows) -> tuple[Ints, int]:
    """Slot ids by a dict of the rows' bytes."""
    slots: dict[bytes, int] = {}
    ids = np.array([slots.setdefault(row.tobytes(), len(slots)) for row in rows])
    return ids, len(slots)


def duplicates(n_tokens: int, width: int) -> Result:
    """Repeats that are the same byte for byte: ours against a dict."""
    rows = draw(n_tokens, N_ITEMS, width, noise=0.0).rows
    runs = {
        f"ours, tau {TAU}": partial(ours, rows, TAU),
        "ours, tau 0": partial(ours, rows, 0.0),
        "dict of bytes": partial(by_bytes, rows),
    }
    raced = race(runs)
    same = bool((raced["ours, tau 0"].result[0] == raced["dict of bytes"].result[0]).all())
    rates = {name: run.rate(n_tokens) for name, run in raced.items()}
    speeds = ", ".join(f"{name} {short(rate['tokens_per_s'])}" for name, rate in rates.items())
    equal = "equal" if same else "NOT EQUAL"
    print(f"exact duplicates, D {width}, tokens/s: {speeds}; ids of tau 0 and dict {equal}")
    return {"D": width, "N": n_tokens, "same_ids": same, "rates": rates}


def line(row: Result) -> list[str]:
    """A line of the table."""
    figures = [
        f"{row['slots_per_item']:.2f}",
        f"{row['recall']:.3f}",
        f"{row['ours_is_faster']:.1f}x",
    ]
    setting = ", ".join(f"{name} {value}" for name, value in row["setting"].items())
    speed = short(row["tokens_per_s"])
    return [str(row["D"]), short(row["N"]), row["name"], speed, *figures, setting]


def main() -> None:
    """Measure two streams and the exact duplicates, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="D 64 alone, 30k tokens")
    quick = parser.parse_args().quick
    facts = stamp("scikit-learn", "river")
    write(Cache(), draw(8192, N_ITEMS, 64).rows)
    rows: list[Result] = []
    for width, n_tokens in [(64, 30_000)] if quick else [(64, 100_000), (384, 30_000)]:
        print(f"\nD {width}, K {short(N_ITEMS)}, N {short(n_tokens)}", flush=True)
        rows += measure(draw(n_tokens, N_ITEMS, width))
    print()
    head = ["D", "N", "", "tokens/s", "slots/item", "recall", "ours is faster", "setting"]
    table(head, [line(row) for row in rows])
    print("A baseline on fewer tokens saw the early, lighter part: its rate is flattered.\n")
    same = [duplicates(30_000 if quick else 100_000, width) for width in (64, 384)]
    keep("peers", {"machine": facts, "streams": rows, "duplicates": same})


if __name__ == "__main__":
    main()
