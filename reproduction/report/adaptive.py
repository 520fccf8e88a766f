"""The figures of study ``adaptive``."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from ..result import Result, Row, Series
from . import svg
from .picture import MARKS, Picture, name_rows, ring, spaced
from .words import claim_on, number, spread

HIGHEST = 44  # slots shown of a memory that grows without end
# How each line of the trace is drawn: role, stroke, width.
STROKES = {
    "unbounded": ("paper", ":", 1.5),
    "b30": ("paper", "-", 1.2),
    "b18": ("paper", "-", 1.2),
    "ttl40": ("added", "-", 1.2),
    "budget": ("cache", "--", 1.2),
    "surprise": ("cache", "-", 2.4),
}
BOUNDED = ("b18", "b22", "b24", "b30", "ttl30", "ttl40", "ttl50", "surprise")


def pictures(result: Result) -> tuple[Picture, ...]:
    """Slots along the stream; then recall against both averages, and what is gained."""
    rows = [row for row in result.tables["alternating"] if row.name in BOUNDED]
    costs = "; ".join(
        f"{row.label}: recall {spread(row.measures['recall'])}, slots at phase ends "
        f"{spread(row.measures['phase end'])}, per token {spread(row.measures['per token'])}"
        for row in rows
    )
    gains = "; ".join(f"{row.label}: {spread(row.measures['gain'])}" for row in _gains(result))
    swing = {row.name: row.measures["budget"].mean for row in result.tables["swing"]}
    return (
        Picture(
            "adaptive-trace",
            "Slots held along the paper's stream, the mean over all streams; the shade is the "
            "number of items in the phase. Dashed: the adaptive budget. The cache without a budget "
            "leaves the figure.",
            "Slots against tokens. The adaptive budget rises in phases of 30 items and falls in "
            f"those of 6: it ends them at {number(swing['hard'])} and {number(swing['easy'])}. "
            "Fixed budgets stay flat, and without a budget the slots only grow.",
            lambda axes: slots_along_the_stream(axes, result),
            (6.6, 3.7),
            title="Slots along the stream",
        ),
        Picture(
            "adaptive-cost",
            "Recall against average slots. Open: averaged over ends of phases, as in the paper. "
            "Filled: averaged over tokens. The line joins fixed budgets per token.",
            f"Recall against average slots, counted in two ways. {costs}.",
            lambda axes: recall_against_cost(axes, result),
            title="Recall against average slots",
        ),
        Picture(
            "adaptive-gain",
            "Recall of the adaptive budget less that of another memory on the same streams, with "
            "the spread over seeds. Rings: what the paper says.",
            f"Gain in recall of the adaptive budget. {gains}.",
            lambda axes: gains_by_rival(axes, result),
            title="What the adaptive budget gains",
        ),
    )


def slots_along_the_stream(axes: Axes, result: Result) -> None:
    """A line per memory over the shape of the demand, named at its end."""
    series = {line.name: line for line in result.series}
    demand = series["demand"]
    shade, items = (0.0, *demand.x), (demand.y[0], *demand.y)
    axes.fill_between(shade, items, step="pre", color=svg.COLOURS["grid"], linewidth=0)
    for name, (role, stroke, width) in STROKES.items():
        line = series[name]
        axes.plot(line.x, line.y, stroke, color=svg.COLOURS[role], linewidth=width)
    _name_ends(axes, [series[name] for name in STROKES if name != "unbounded"])
    endless = series["unbounded"]
    leaves = endless.x[sum(y <= HIGHEST for y in endless.y) - 1]
    note = f"{endless.label}: {endless.y[-1]:.0f} at the end"
    axes.annotate(note, (leaves * 1.06, 0.95 * HIGHEST), color=svg.COLOURS["paper"])
    axes.set_xlim(0, demand.x[-1])
    axes.set_ylim(0, HIGHEST)
    axes.set_xlabel("tokens")
    axes.set_ylabel("slots")


def recall_against_cost(axes: Axes, result: Result) -> None:
    """An open and a filled point per row, joined; fixed budgets strung on a line."""
    rows = [row for row in result.tables["alternating"] if row.name in BOUNDED]
    fixed = [row.measures for row in rows if row.name.startswith("b")]
    costs, recalls = ([one[name].mean for one in fixed] for name in ("per token", "recall"))
    axes.plot(costs, recalls, color=svg.COLOURS["paper"], linewidth=1, alpha=0.5)
    for row in rows:
        colour, size = svg.COLOURS[row.role], 10 if row.role == "cache" else 6
        ends, token = row.measures["phase end"].mean, row.measures["per token"].mean
        recall = row.measures["recall"].mean
        axes.plot([ends, token], [recall, recall], ":", color=colour, linewidth=1.2)
        axes.plot(ends, recall, MARKS[row.role], color=colour, markerfacecolor="none", ms=size)
        axes.plot(token, recall, MARKS[row.role], color=colour, ms=size)
        # Fixed budgets have their names on the right, so that rivals at one height both have room.
        right = row.name.startswith("b")
        axes.annotate(
            row.label,
            (token if right else ends, recall),
            xytext=(8 if right else -8, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            color=colour,
            weight="bold" if row.role == "cache" else "normal",
        )
    axes.set_xlim(0, 40)
    axes.grid(visible=True)
    axes.set_xlabel("average slots")
    axes.set_ylabel("recall")


def gains_by_rival(axes: Axes, result: Result) -> None:
    """A point with its spread per row, around zero."""
    rows = _gains(result)[::-1]
    axes.axvline(0, color=svg.COLOURS["muted"], linewidth=1)
    for place, row in enumerate(rows):
        gain, colour = row.measures["gain"], svg.COLOURS[row.role]
        axes.errorbar(gain.mean, place, xerr=gain.sd, fmt=MARKS[row.role], color=colour, ms=6)
        claimed = claim_on(result, row, "gain")
        if claimed:
            ring(axes, claimed.paper, place, 10)
    name_rows(axes, rows)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall gained by the adaptive budget")


def _gains(result: Result) -> tuple[Row, ...]:
    """The paper's two comparisons, then those at equal cost."""
    return (
        *(row for row in result.tables["gain"] if result.claims_of(row)),
        *result.tables["level"],
    )


def _name_ends(axes: Axes, lines: Sequence[Series]) -> None:
    """Labels to the right of the axes, at the last heights of the lines."""
    falling = sorted(lines, key=lambda line: -line.y[-1])
    heights = spaced([line.y[-1] for line in falling], 0.058 * HIGHEST)
    for line, height in zip(falling, heights, strict=True):
        axes.annotate(
            line.label,
            (line.x[-1] * 1.012, height),
            va="center",
            color=svg.COLOURS[STROKES[line.name][0]],
            weight="bold" if line.name == "surprise" else "normal",
            annotation_clip=False,
        )
