"""The figures of study ``domains``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..result import Result, Row
from . import svg
from .picture import Picture, name_rows
from .words import number, spread

# What each quarter-budget measure is drawn with, and called in the key.
QUARTERS = (
    ("commonest class", "|", "muted", "commonest class"),
    ("last tokens", "v", "paper", "last tokens"),
    ("least used leaves", "o", "added", "cache with a budget"),
)


def pictures(result: Result) -> tuple[Picture, ...]:
    """Events beside slots; and what a quarter of the slots recalls."""
    streams = _streams(result)
    if not streams:
        return ()
    said = "; ".join(
        f"{row.label}: {number(row.measures['events'].mean)} events, "
        f"{number(row.measures['distinct'].mean)} distinct, "
        f"{spread(row.measures['slots'])} slots, recall {spread(row.measures['recall'])}"
        for row in streams
    )
    quartered = "; ".join(
        f"{row.label}: "
        + ", ".join(f"{label} {spread(row.measures[name])}" for name, _, _, label in QUARTERS)
        for row in streams
    )
    return (
        Picture(
            "domains-slots",
            "Events (open), slots of the cache (filled) and distinct items (bar) of each stream; "
            "how often an item comes, and recall, in numbers.",
            f"Events, distinct items and slots, log scale. {said}.",
            lambda axes: events_and_slots(axes, streams[::-1]),
            (7.2, 3.4),
            title="Events, slots and items of each stream",
        ),
        Picture(
            "domains-quarter",
            "Recall with a quarter of the slots; on the right, the cache with all that it opens.",
            f"Recall with a quarter of the slots. {quartered}.",
            lambda axes: quarter(axes, streams[::-1]),
            (7.2, 3.6),
            title="Recall with a quarter of the slots",
        ),
    )


def events_and_slots(axes: Axes, rows: Sequence[Row]) -> None:
    """From events down to slots, a line each."""
    ink, cache, muted = (svg.COLOURS[name] for name in ("ink", "cache", "muted"))
    for place, row in enumerate(rows):
        found = {name: measure.mean for name, measure in row.measures.items()}
        axes.plot([found["slots"], found["events"]], [place] * 2, color=muted, linewidth=1)
        axes.plot(found["events"], place, "o", color=ink, markerfacecolor="none", ms=7)
        axes.plot(found["slots"], place, "o", color=cache, ms=7)
        axes.plot(found["distinct"], place, "|", color=ink, ms=16)
        middle = (found["slots"] * found["events"]) ** 0.5
        text = f"÷ {number(found['redundancy'])}, recall {found['recall']:.3f}"
        axes.annotate(text, (middle, place), (0, 4), textcoords="offset points", ha="center")
    name_rows(axes, rows)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(left=0.6 * min(row.measures["slots"].mean for row in rows))
    axes.minorticks_off()
    axes.set_ylim(-0.5, len(rows) - 0.3)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("count (log scale)")


def quarter(axes: Axes, rows: Sequence[Row]) -> None:
    """Marks for each stream."""
    for name, mark, role, label in QUARTERS:
        means = [row.measures[name].mean for row in rows]
        colour = svg.COLOURS[role]
        axes.plot(means, range(len(rows)), mark, color=colour, ms=9, label=label)
    recalls = [row.measures["recall"].mean for row in rows]
    axes.plot(recalls, range(len(rows)), "o", color=svg.COLOURS["cache"], ms=8, label="the cache")
    name_rows(axes, rows)
    axes.set_xlim(0, 1.04)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall")
    axes.legend(loc=(0.48, 0.3), labelcolor="linecolor", frameon=False, fontsize=9)


def _streams(result: Result) -> tuple[Row, ...]:
    """The streams that were here, each with what all tables have of it."""
    tables = [result.tables[name] for name in ("counts", "keyed", "quarter")]
    return tuple(
        replace(rows[0], measures={name: one for row in rows for name, one in row.measures.items()})
        for rows in zip(*tables, strict=True)
        if not rows[0].absent
    )
