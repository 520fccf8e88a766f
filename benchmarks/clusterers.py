"""Stream clusterers of other libraries: how each learns, and the settings worth trying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .common import Rows, chunks

Setting = dict[str, Any]


@dataclass(frozen=True)
class Baseline:
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
    """Centres of MiniBatchKMeans (scikit-learn), given their number; k-means++ first."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(
        n_items, init_size=first, reassignment_ratio=reassignment_ratio, random_state=0
    )
    model.partial_fit(rows[:first])
    for part in chunks(len(rows) - first):
        model.partial_fit(rows[first:][part])
    return model.cluster_centers_


def dbstream(rows: Rows, clustering_threshold: float, intersection_factor: float) -> Rows:
    """Centres of river's DBSTREAM without forgetting; it takes a token as a dict."""
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


BASELINES = [
    Baseline(
        *("Birch", "sklearn", birch),
        # 50 is the default; with more branches than items the tree is flat, and far better here.
        grid(threshold=(0.25, 0.3, 0.4, 0.5), branching_factor=(50, 4000)),
    ),
    Baseline(
        *("MiniBatchKMeans", "sklearn", k_means),
        grid(n_items=(1000,), first=(4096, 16384), reassignment_ratio=(0.0, 0.01, 0.1)),
        trial=30_000,
    ),
    Baseline(
        *("DBSTREAM", "river", dbstream),
        grid(clustering_threshold=(0.4, 0.6, 0.8, 1.0), intersection_factor=(0.3,)),
        tokens=3_000,
        trial=1_000,
    ),
]
