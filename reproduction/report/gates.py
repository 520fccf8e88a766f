"""The figure of study ``gates``."""

from __future__ import annotations

from matplotlib.axes import Axes

from ..result import Result, Row
from . import svg
from .picture import Picture, name_rows, ring
from .words import claim_on, spread

SHOWN = ("gates", "recipe")  # tables in the figure


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall before training and after it."""
    rows = _rows(result)
    recalls = "; ".join(
        f"{row.label}: {spread(row.measures['before'])} before, {spread(row.measures['recall'])} "
        "after"
        for row in reversed(rows)
    )
    return (
        Picture(
            "gates-recall",
            "Recall from 64 kept tokens before training (small) and after it (large), with the "
            "spread over seeds. Above: the paper's gates and loss. Below: a gate that fails, with "
            "changes to its training. Rings: the paper's numbers.",
            f"A line from recall before training to recall after it, for each gate. {recalls}.",
            lambda axes: before_and_after(axes, result),
            (7.6, 4.8),
            "Recall of a gate before it is trained and after",
        ),
    )


def before_and_after(axes: Axes, result: Result) -> None:
    """A line for each gate, from where it starts to where it ends."""
    rows = _rows(result)
    for place, row in enumerate(rows):
        colour = svg.COLOURS[row.role]
        before, after = row.measures["before"], row.measures["recall"]
        axes.plot([before.mean, after.mean], [place, place], color=colour, linewidth=1.2)
        axes.plot(before.mean, place, "o", color=colour, markersize=4)
        axes.errorbar(after.mean, place, xerr=after.sd, fmt="o", color=colour, markersize=8)
        if claim := claim_on(result, row, "recall"):
            ring(axes, claim.paper, place, 13)
    parted = len(result.tables["recipe"]) - 0.5
    axes.axhline(parted, color=svg.COLOURS["grid"], linewidth=1)
    name_rows(axes, rows)
    axes.set_xlim(0, 1.04)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall")


def _rows(result: Result) -> list[Row]:
    """From the bottom to the top."""
    return [row for name in SHOWN for row in result.tables[name]][::-1]
