"""The figures of study ``kmeans``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from ..result import Result
from .curves import Stroke, draw, key
from .picture import Picture, ring
from .words import claim_on, spread

# How each line is drawn; in the key from the last to the first.
STROKES: Mapping[str, Stroke] = {
    "random": Stroke("paper", "v-", width=1.6),
    "random_10": Stroke("added", "v--"),
    "spread": Stroke("added", "^-"),
    "spread_10": Stroke("added", "s:"),
    "dp_mean": Stroke("cache", "x:"),
    "dp": Stroke("cache", "o-", width=2.6, mark=7),
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall against slots."""
    recalls = "; ".join(
        f"{row.label}: recall {spread(row.measures['recall'])}, at its peak "
        f"{spread(row.measures['peak'])} slots"
        for row in result.tables["points"]
    )
    return (
        Picture(
            "kmeans-slots",
            "Recall against slots: k-means by M, the cache by its threshold, with the spread over "
            "seeds. Rings: the paper's numbers.",
            f"Recall against slots. All lines rise and end near 1. At 64 slots: {recalls}.",
            lambda axes: recall_against_slots(axes, result),
            (7.6, 4.2),
            title="Recall against slots, beside k-means",
        ),
    )


def recall_against_slots(axes: Axes, result: Result) -> None:
    """A line for each start, and for the cache."""
    lines = {line.name: line for line in result.series}
    draw(axes, ((lines[f"{name}.slots"], stroke) for name, stroke in STROKES.items()))
    for row in result.tables["points"]:
        claim = claim_on(result, row, "recall")
        if claim and row.role != "added":
            ring(axes, 64, claim.paper, 14 if row.role == "cache" else 10)
    axes.set_xlim(0, 132)
    axes.set_ylim(0, 1.06)
    axes.set_xticks(range(0, 129, 16))
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("slots")
    axes.set_ylabel("recall")
    key(axes, (0.64, 0.03))
