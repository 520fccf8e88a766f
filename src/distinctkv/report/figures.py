"""Which figures a study has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .. import snapshot
from ..studies.result import Result
from . import adaptive, cost, frontier, kmeans, process, recall, stress, svg
from .picture import Picture

PICTURES: Mapping[str, Callable[[Result], tuple[Picture, ...]]] = {
    "recall": recall.pictures,
    "frontier": frontier.pictures,
    "kmeans": kmeans.pictures,
    "cost": cost.pictures,
    "adaptive": adaptive.pictures,
    "process": process.pictures,
    "stress": stress.pictures,
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """The figures of a study, the one that tells its story first."""
    return PICTURES[result.study](result) if result.study in PICTURES else ()


def write_story(result: Result, path: Path) -> None:
    """The study's first figure as an SVG file."""
    first = pictures(result)[0]
    snapshot.replace(path, svg.standalone(first.paint, first.size).encode())
