"""The figures of study ``tau``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from distinctkv.rule import Floats

from ..result import Result
from . import svg
from .curves import Stroke, draw, key
from .picture import Picture
from .words import spread

STROKES: Mapping[str, Stroke] = {
    "movielens": Stroke("paper", "o-", width=1.6),
    "mimic": Stroke("added", "^--", width=1.6),
    "synpuf": Stroke("ink", "s:", width=1.6),
}
RANGE = (0.5, 0.8)  # the paper's plateau


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall and slots against the threshold; slots against the noise."""
    here = {
        name: rows for name in STROKES if (rows := result.tables.get(name)) and rows[0].measures
    }
    said = "; ".join(
        f"{result.headings[name]}, {row.label}: {spread(row.measures['slots / distinct'])} slots "
        f"per distinct item, recall {spread(row.measures['recall'])}"
        for name, rows in here.items()
        for row in rows
    )
    noises = "; ".join(
        f"{row.label}: "
        + ", ".join(f"{name} {spread(measure)}" for name, measure in row.measures.items())
        for row in result.tables["noise"]
    )
    return (
        Picture(
            "tau-noise",
            "Slots per distinct item at similarity .9 (tau .1), against the noise of the keys: the "
            "paper's “roughly twice” (dotted) is one point on a steep line.",
            f"Slots per distinct item against noise. {noises}.",
            lambda axes: slots_against_noise(axes, result),
            title="Slots at similarity .9 against noise",
        ),
        Picture(
            "tau-recall",
            "Recall against the threshold, as a similarity (below) and as novelty, tau (above). "
            "Grey: where the paper says nothing changes.",
            f"Recall against the threshold. {said}.",
            lambda axes: against_threshold(axes, result, "recall"),
            title="Recall against the threshold",
        ),
        Picture(
            "tau-slots",
            "Slots per distinct item against the threshold, log scale.",
            f"Slots per distinct item against the threshold. {said}.",
            lambda axes: against_threshold(axes, result, "slots"),
            title="Slots against the threshold",
        ),
    )


def against_threshold(axes: Axes, result: Result, kind: str) -> None:
    """A line for each stream; both conventions."""
    axes.axvspan(*RANGE, color=svg.COLOURS["grid"], alpha=0.5, linewidth=0)
    _draw(axes, result, kind)
    axes.set_xlim(0.17, 0.93)
    axes.set_xlabel("similarity at which a repeat merges")
    above = axes.secondary_xaxis("top", functions=(_turned, _turned))
    above.set_xlabel("tau, novelty above which a slot opens")
    axes.grid(visible=True, axis="y")
    if kind == "recall":
        axes.set_ylim(0, 1.06)
        axes.set_ylabel("recall")
    else:
        _logarithmic(axes, (0.03, 0.1, 0.3, 1, 3))
    key(axes, (0.55, 0.1))


def _turned(threshold: ArrayLike) -> Floats:
    """A similarity as novelty, and back."""
    return 1 - np.asarray(threshold, dtype=np.float64)


def slots_against_noise(axes: Axes, result: Result) -> None:
    """A line for each stream, and the paper's factor."""
    axes.axhline(2, linestyle=":", color=svg.COLOURS["ink"], linewidth=1)
    _draw(axes, result, "noise")
    _logarithmic(axes, (1, 2, 4, 8))
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("noise of the keys")
    key(axes, (0.03, 0.7))


def _draw(axes: Axes, result: Result, kind: str) -> None:
    lines = {line.name: line for line in result.series}
    drawn = [name for name in STROKES if f"{kind}.{name}" in lines]
    draw(axes, ((lines[f"{kind}.{name}"], STROKES[name]) for name in drawn))


def _logarithmic(axes: Axes, ticks: tuple[float, ...]) -> None:
    axes.set_yscale("log")
    axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.set_ylabel("slots per distinct item (log scale)")
