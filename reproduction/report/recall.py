"""The figures of study ``recall``."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..result import Result, Row
from . import svg
from .picture import MARKS, Picture, name_rows, ring, spaced
from .words import claim_on, number, spread

# Rows of a state are no slots. The paper counts them so, for one state; we go no further with it.
STATES = ("delta", "ridge", "fourier", "based", "kanerva")


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall against slots; then recall by seed, and bytes."""

    def told(*measures: str) -> str:
        return "; ".join(
            f"{row.label}: " + ", ".join(f"{m} {spread(row.measures[m])}" for m in measures)
            for row in result.rows
        )

    return (
        Picture(
            "recall-slots",
            "Recall against slots held, both at the end of the stream. Filled: measured here, with "
            "the spread over seeds. Rings: the paper's numbers. Squares: rivals the paper does not "
            "have; those that are states are in the figure of bytes.",
            f"Recall against slots, slots on a log scale. {told('recall', 'slots')}.",
            lambda axes: recall_against_slots(axes, result),
            title="Recall against slots",
        ),
        Picture(
            "recall-seeds",
            "Recall of every seed (dots), their mean (bar), and the paper's number (ring).",
            f"Recall by mechanism, one dot per seed. {told('recall')}.",
            lambda axes: recall_of_seeds(axes, result),
            title="Recall of every seed",
        ),
        Picture(
            "recall-bytes",
            "Bytes each memory holds at the end of the stream, one-hot values and counters "
            "included; beside them its recall.",
            f"Bytes held, and recall. {told('bytes', 'recall')}.",
            lambda axes: bytes_held(axes, result),
            title="Bytes held",
        ),
    )


def recall_against_slots(axes: Axes, result: Result) -> None:
    """A labelled point per row, and a ring where the paper has it."""
    rows = [row for row in result.rows if row.name not in STATES]
    for row in rows:
        recall, slots = row.measures["recall"], row.measures["slots"]
        large = row.role == "cache"
        axes.errorbar(
            slots.mean,
            recall.mean,
            yerr=recall.sd,
            fmt=MARKS[row.role],
            color=svg.COLOURS[row.role],
            markersize=11 if large else 6,
            elinewidth=1,
            # A rival at the very place of the cache stays to be seen.
            zorder=2.5 if large else 3,
        )
        claimed = claim_on(result, row, "recall"), claim_on(result, row, "slots")
        if claimed[0] and claimed[1]:
            ring(axes, claimed[1].paper, claimed[0].paper, 13 if large else 9)
    _rule_paper(axes, rows)
    _label_points(axes, rows)
    axes.text(
        0.99,
        0.02,
        "rings: the paper's numbers",
        ha="right",
        color=svg.COLOURS["muted"],
        transform=axes.transAxes,
    )


def recall_of_seeds(axes: Axes, result: Result) -> None:
    """A line of dots per row."""
    rows = result.rows[::-1]
    series = {line.name: line for line in result.series}
    for place, row in enumerate(rows):
        colour = svg.COLOURS[row.role]
        seeds = series[row.name].y
        axes.plot(seeds, [place] * len(seeds), MARKS[row.role], color=colour, ms=5, alpha=0.35)
        axes.plot(row.measures["recall"].mean, place, "|", color=colour, ms=16, mew=2.5)
        claimed = claim_on(result, row, "recall")
        if claimed:
            ring(axes, claimed.paper, place, 10)
    name_rows(axes, rows)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall")


def bytes_held(axes: Axes, result: Result) -> None:
    """A bar per row, with its number."""
    rows = result.rows[::-1]
    sizes = [row.measures["bytes"].mean for row in rows]
    bars = axes.barh(range(len(rows)), sizes, color=[svg.COLOURS[row.role] for row in rows])
    words = [
        f"{number(row.measures['bytes'].mean)}: {row.measures['recall'].mean:.3f}" for row in rows
    ]
    axes.bar_label(bars, words, padding=4)
    axes.set_xlim(0, max(sizes) * 1.35)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    name_rows(axes, rows)
    axes.set_xlabel("bytes held")


def _rule_paper(axes: Axes, rows: Sequence[Row]) -> None:
    """Slots in doublings, recall in tenths, and room around the points for their names."""
    sizes = [row.measures["slots"].mean for row in rows]
    lowest = min(row.measures["recall"].mean for row in rows)
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(sizes) / 3.9, max(sizes) * 3.4)
    axes.set_ylim(lowest - 0.1, 1.08)
    powers = range(floor(log2(min(sizes))), ceil(log2(max(sizes))) + 1)
    axes.set_xticks([2.0**power for power in powers])
    axes.set_yticks([tick / 10 for tick in range(11) if lowest - 0.1 <= tick / 10])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("slots held (log scale)")
    axes.set_ylabel("recall")


def _place(row: Row) -> tuple[float, float]:
    """Where a point is, as far as the eye can tell."""
    return round(row.measures["slots"].mean), round(row.measures["recall"].mean, 2)


def _label_points(axes: Axes, rows: Sequence[Row]) -> None:
    """A name beside each point: the cache's above, left of it a tie's, the smallest's left."""
    low, high = axes.get_ylim()
    smallest = min(row.measures["slots"].mean for row in rows)
    ours = [_place(row) for row in rows if row.role == "cache"]
    columns: dict[int, list[Row]] = {}
    for row in rows:
        slots, recall = row.measures["slots"].mean, row.measures["recall"].mean
        colour = svg.COLOURS[row.role]
        if row.role == "cache":
            place = (slots, recall + 0.055 * (high - low))
            axes.annotate(row.label, place, ha="center", color=colour, weight="bold")
        elif slots == smallest or _place(row) in ours:
            axes.annotate(row.label, (slots / 1.16, recall), ha="right", va="center", color=colour)
        else:
            columns.setdefault(round(slots), []).append(row)
    for column in columns.values():
        column.sort(key=lambda row: -row.measures["recall"].mean)
        heights = [row.measures["recall"].mean for row in column]
        for row, height in zip(column, spaced(heights, 0.055 * (high - low)), strict=True):
            place = (row.measures["slots"].mean * 1.16, height)
            axes.annotate(row.label, place, va="center", color=svg.COLOURS[row.role])
