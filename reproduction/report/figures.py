"""Which figures a study has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from distinctkv import snapshot

from ..result import Result
from . import (
    adaptive,
    adaptive_real,
    cost,
    domains,
    five_models,
    frontier,
    gates,
    hybrid,
    kmeans,
    logs,
    mqar,
    process,
    real_frontier,
    recall,
    stress,
    tau,
)
from .picture import Picture

PICTURES: Mapping[str, Callable[[Result], tuple[Picture, ...]]] = {
    "recall": recall.pictures,
    "frontier": frontier.pictures,
    "real_frontier": real_frontier.pictures,
    "domains": domains.pictures,
    "logs": logs.pictures,
    "tau": tau.pictures,
    "gates": gates.pictures,
    "hybrid": hybrid.pictures,
    "five_models": five_models.pictures,
    "mqar": mqar.pictures,
    "kmeans": kmeans.pictures,
    "cost": cost.pictures,
    "adaptive": adaptive.pictures,
    "adaptive_real": adaptive_real.pictures,
    "process": process.pictures,
    "stress": stress.pictures,
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """The figures of a study, the one that tells its story first."""
    drawn = result.study in PICTURES and result.rows
    return PICTURES[result.study](result) if drawn else ()


def write_story(results: Sequence[Result], path: Path) -> bool:
    """The first figure of the first study that has one, as an SVG file; whether there is one."""
    drawn = [picture for result in results for picture in pictures(result)[:1]]
    if not drawn:
        return False
    snapshot.replace(path, drawn[0].standalone().encode())
    return True
