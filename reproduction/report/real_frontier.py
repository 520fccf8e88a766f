"""The figures of study ``real_frontier``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..result import Result
from ..studies.real_frontier import BUDGET
from . import svg
from .curves import Stroke, draw, key
from .picture import MARKS, Picture, name_rows, ring
from .words import claim_on, spread

# How each line is drawn; in the key from the last to the first.
STROKES: Mapping[str, Stroke] = {
    "attention": Stroke("paper", "s"),
    "keydiff": Stroke("added", "v:"),
    "sinks": Stroke("paper", "x:"),
    "recency": Stroke("paper", "v-"),
    "h2o": Stroke("paper", "o--"),
    "h2o_tuned": Stroke("added", "^-"),
    "redundancy": Stroke("added", "s:"),
    "lfu": Stroke("added", "D--"),
    "subgen": Stroke("added", "x"),
    "dp": Stroke("cache", "o-", width=2.6, mark=7),
}
TICKS = (100, 300, 1000, 3000, 10_000, 30_000)


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall against slots; and who recalls the movies, who the popular ones."""
    said = "; ".join(
        f"{row.label}: recall {spread(row.measures['recall'])} from "
        f"{spread(row.measures['slots'])} slots, by rating {spread(row.measures['by rating'])}"
        for row in result.tables["points"]
    )
    return (
        Picture(
            "real_frontier-slots",
            "Recall of 1,388 movies' genres against slots held: the cache by its threshold, "
            "policies by budget, with the spread over keys. SnapKV is drawn at the 1,600 tokens "
            "that it reads; it holds every one. Rings: the paper's numbers.",
            f"Recall against slots, slots on a log scale. {said}.",
            lambda axes: recall_against_slots(axes, result),
            (7.6, 4.6),
            title="Recall of movies' genres against slots",
        ),
        Picture(
            "real_frontier-popular",
            "At a budget of 1,600: the part of the movies that is recalled (filled), and the same "
            "with every movie weighed by its ratings (open). What is popular is easily kept.",
            f"Recall of movies, and weighed by ratings. {said}.",
            lambda axes: popular_and_rare(axes, result),
            (5.6, 4.4),
            title="What is popular is easily kept",
        ),
    )


def recall_against_slots(axes: Axes, result: Result) -> None:
    """A line for each memory, on a log scale of slots."""
    lines = {line.name: line for line in result.series}
    draw(axes, ((lines[f"{name}.slots"], stroke) for name, stroke in STROKES.items()))
    for row in result.tables["points"]:
        if row.name == "snapkv_once":
            found = row.measures["recall"].mean
            axes.plot(BUDGET, found, "D", color=svg.COLOURS["paper"], ms=4.5, label=row.label)
        recall, slots = claim_on(result, row, "recall"), claim_on(result, row, "slots")
        if recall and slots:
            ring(axes, slots.paper, recall.paper, 14 if row.role == "cache" else 10)
    axes.set_xscale("log")
    axes.set_xlim(90, 45_000)
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(0, 1.06)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("slots held (log scale)")
    axes.set_ylabel("recall")
    key(axes, (0.64, 0.03))


def popular_and_rare(axes: Axes, result: Result) -> None:
    """Two marks a row."""
    rows = result.tables["points"][::-1]
    for place, row in enumerate(rows):
        colour, mark = svg.COLOURS[row.role], MARKS[row.role]
        recall, popular = (row.measures[name].mean for name in ("recall", "by rating"))
        axes.plot([recall, popular], [place, place], color=colour, linewidth=1)
        axes.plot(recall, place, mark, color=colour, ms=7)
        axes.plot(popular, place, mark, color=colour, markerfacecolor="none", ms=7)
    name_rows(axes, rows)
    axes.set_xlim(0, 1.04)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall")
