"""Stream clusterers of other libraries: quality beside speed, and ours on the same streams.

Each clusterer first tries a few settings on another stream of the same kind and keeps the best. Its
learning alone is timed; then every token is assigned to its nearest centre. Ours is timed with all
it does. Run ``python -m benchmarks.clustering`` (minutes), or with ``--quick``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration

from .common import Ints, Rows, Stream, chunks, draw, keep, race, short, stamp, table, timed, write

Setting = dict[str, Any]


@dataclass(frozen=True)
class Clusterer:
    """How to learn centres from rows, which settings to try, and how many tokens are enough."""

    name: str
    module: str
    learn: Callable[..., Rows]
    settings: list[Setting]
    tokens: int = 100_000
    trial: int = 20_000


def birch(rows: Rows, threshold: float, branching_factor: int) -> Rows:
    """Centres of scikit-learn's Birch, in chunks, without its last, global step."""
    from sklearn.cluster import Birch

    model = Birch(
        threshold=threshold,
        branching_factor=branching_factor,
        n_clusters=None,
        compute_labels=False,
    )
    for part in chunks(len(rows)):
        model.partial_fit(rows[part])
    return model.subcluster_centers_


def k_means(rows: Rows, n_items: int, first: int, reassignment_ratio: float) -> Rows:
    """Centres of scikit-learn's MiniBatchKMeans, told how many, by k-means++ on the first rows."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(
        n_items, init_size=first, reassignment_ratio=reassignment_ratio, random_state=0
    )
    model.partial_fit(rows[:first])
    for part in chunks(len(rows) - first):
        model.partial_fit(rows[first:][part])
    return model.cluster_centers_


def dbstream(rows: Rows, clustering_threshold: float, intersection_factor: float) -> Rows:
    """Centres of river's DBSTREAM, told to forget nothing; a token is a dict there."""
    from river.cluster import DBSTREAM

    model = DBSTREAM(
        clustering_threshold=clustering_threshold,
        intersection_factor=intersection_factor,
        fading_factor=1e-6,
        cleanup_interval=10**9,
    )
    for row in rows:
        model.learn_one(dict(enumerate(row.tolist())))
    return np.array([list(centre.values()) for centre in model.centers.values()], np.float32)


def grid(**choices: tuple[Any, ...]) -> list[Setting]:
    """Every combination.

    >>> grid(a=(1, 2), b=(3,))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(choices, each, strict=True)) for each in product(*choices.values())]


CLUSTERERS = [
    Clusterer(
        *("Birch", "sklearn", birch),
        # 50 is the default; with more branches than items the tree is flat, and far better here.
        grid(threshold=(0.25, 0.3, 0.4, 0.5), branching_factor=(50, 4000)),
    ),
    Clusterer(
        *("MiniBatchKMeans", "sklearn", k_means),
        grid(n_items=(1000,), first=(4096, 16384), reassignment_ratio=(0.0, 0.01, 0.1)),
        trial=30_000,
    ),
    Clusterer(
        *("DBSTREAM", "river", dbstream),
        grid(clustering_threshold=(0.4, 0.6, 0.8, 1.0), intersection_factor=(0.3,)),
        tokens=3_000,
        trial=1_000,
    ),
]


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


def tune(clusterer: Clusterer, width: int) -> Setting:
    """The setting that is best on a stream of its own: high recall, and not by many slots."""

    def score(setting: Setting) -> float:
        centres = clusterer.learn(trial.rows, **setting)
        spent, recall = quality(nearest(trial.rows, centres), len(centres), trial.items)
        return recall / max(1.0, spent)

    trial = draw(clusterer.trial, N_ITEMS, width, seed=1)
    return max(clusterer.settings, key=score)


def measure(stream: Stream) -> list[Result]:
    """Ours, and every clusterer that is installed, on one stream."""
    width = stream.rows.shape[1]
    run = race({"ours": partial(ours, stream.rows, TAU)})["ours"]
    ids, n_slots = run.result
    spent, recall = quality(ids, n_slots, stream.items)
    sizes = {"D": width, "N": len(stream)}
    rate = run.rate(len(stream))
    found = [{"name": "ours", "setting": {"tau": TAU}, "slots_per_item": spent, "recall": recall}]
    found[0] |= sizes | rate | {"ours_is_faster": 1.0}
    for clusterer in CLUSTERERS:
        if not find_spec(clusterer.module):
            print(f"  {clusterer.name} is not installed")
            continue
        setting, part = tune(clusterer, width), stream[: clusterer.tokens]
        centres, time = timed(partial(clusterer.learn, part.rows, **setting))
        spent, recall = quality(nearest(part.rows, centres), len(centres), part.items)
        theirs = time.rate(len(part))
        one = {
            "name": clusterer.name,
            "setting": setting,
            "slots_per_item": spent,
            "recall": recall,
        }
        one["ours_is_faster"] = rate["tokens_per_s"] / theirs["tokens_per_s"]
        found.append(one | sizes | {"N": len(part)} | theirs)
        print(f"  {clusterer.name}: {short(theirs['tokens_per_s'])} tokens/s", flush=True)
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
    parser = argparse.ArgumentParser(prog="benchmarks.clustering", description=__doc__)
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
    print("A clusterer on fewer tokens saw the early, lighter part: its rate is flattered.\n")
    same = [duplicates(30_000 if quick else 100_000, width) for width in (64, 384)]
    keep("clustering", {"machine": facts, "streams": rows, "duplicates": same})


if __name__ == "__main__":
    main()
