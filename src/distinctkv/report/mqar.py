"""The figure of study ``mqar``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..studies.result import Result
from .curves import Stroke, draw, key
from .picture import Picture
from .words import spread

# How each line is drawn; in the key from the last to the first.
STROKES: Mapping[str, Stroke] = {
    "window": Stroke("ink", "x:"),
    "delta": Stroke("ink", "D--"),
    "mamba2": Stroke("ink", "s-"),
    "ovq": Stroke("added", "v--"),
    "kvm": Stroke("added", "^--"),
    "full": Stroke("paper", "o-", width=1.6),
    "first": Stroke("cache", "s:", width=1.6),
    "mass": Stroke("cache", "o-", width=2.6, mark=7),
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall against the bytes held, as items grow."""
    told = "; ".join(
        f"{row.label}: "
        + ", ".join(f"{name} {spread(measure)}" for name, measure in row.measures.items())
        for row in result.tables["recall"]
    )
    return (
        Picture(
            "mqar-recall",
            "Recall against the bytes that a sequence leaves in each trained model, log scale. "
            "From left to right more items, each as often as in training; no model is trained "
            "again.",
            f"Recall of each trained model. {told}.",
            lambda axes: against_bytes(axes, result),
        ),
    )


def against_bytes(axes: Axes, result: Result) -> None:
    """A line for each model."""
    lines = {line.name: line for line in result.series}
    draw(axes, [(lines[name], stroke) for name, stroke in STROKES.items()])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n / 1024:g} KiB"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bytes held by both blocks at the end of a sequence")
    axes.set_ylim(0, 1.06)
    axes.set_ylabel("recall")
    axes.grid(visible=True, axis="y")
    key(axes, (0.52, 0.08))
