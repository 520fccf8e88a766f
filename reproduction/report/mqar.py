"""The figure of study ``mqar``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..result import Result, measures_of
from .curves import Stroke, draw, key, name_points
from .picture import Picture
from .words import seeds_behind, spread

LEARNED = 0.9  # recall, as trained, of a model that has learned its task
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
    each = ", ".join(map(str, items(result)))
    return (
        Picture(
            "mqar-recall",
            "Recall against the bytes that a sequence leaves in each trained model, log scale, for "
            f"K = {each} items, each as often as in training. The first is as trained, for "
            f"{result.settings['steps']} steps ({seeds_behind(result)}); no model is trained "
            "again for the others. Slots and attention grow from left to right; fixed states stay "
            f"where they are, and their points are named.{_of_states(result)}",
            f"Recall of each trained model. {told}.",
            lambda axes: against_bytes(axes, result),
            (7.6, 4.1),
            "Recall against bytes held, as items grow",
        ),
    )


def items(result: Result) -> list[int]:
    """The items K of each point of a line: of the columns with as many repeats as the first."""
    columns = [name.split() for name in measures_of(result.tables["recall"])]
    return [int(items[2:]) for items, repeats in columns if repeats == columns[0][1]]


def _of_states(result: Result) -> str:
    """What must be said of fixed states that have not learned what they are trained on."""
    rows = {row.name: row for row in result.tables["recall"]}
    first = next(iter(rows["mamba2"].measures.values()))
    if first.mean > LEARNED:
        return ""
    return (
        " In so few steps these are hardly trained: they show what this much training gives, not "
        "what they can hold."
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
    for line in result.series:
        if len(set(line.x)) == 1:
            name_points(axes, line, [f"K={n}" for n in items(result)])
    key(axes, (1.02, 0.1))
