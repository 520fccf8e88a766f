"""Rows down the page with a dot for what each recalls, and in words the bytes it holds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from ..result import Result, Row
from . import svg
from .picture import MARKS, name_rows, ring
from .words import claim_on, number


def recalls(axes: Axes, result: Result, rows: Sequence[Row]) -> None:
    """Recall from 0 to 1, the first row on top; a ring where the paper has it."""
    rows = rows[::-1]
    for place, row in enumerate(rows):
        colour, recall = svg.COLOURS[row.role], row.measures["recall"]
        axes.plot([0, recall.mean], [place, place], color=colour, linewidth=1.2)
        axes.errorbar(recall.mean, place, xerr=recall.sd, fmt=MARKS[row.role], color=colour, ms=8)
        if claim := claim_on(result, row, "recall"):
            ring(axes, claim.paper, place, 13)
        if "bytes" in row.measures:
            words = f"{number(row.measures['bytes'].mean)} bytes"
            axes.text(1.06, place, words, va="center", color=colour)
    name_rows(axes, rows)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, 1.42)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall")
