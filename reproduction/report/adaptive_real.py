"""The figures of study ``adaptive_real``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, isinf, log

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..result import Result, Row
from ..studies.adaptive_real import BGL, HORIZONS, PAPER, STREAMS, Stream
from . import svg
from .picture import MARKS, Picture, name_rows, ring, spaced
from .words import claim_on, number, spread

NEVER = 2500.0  # where "for ever" is drawn
# How the allocators are drawn over decays: role, stroke, width, and the name at the left end.
STROKES = {
    "worst case": ("paper", "--", 1.4, f"Fixed budget {BGL.worst}"),
    "fixed": ("paper", "-", 1.4, f"Fixed budget {BGL.matched}"),
    "adaptive": ("cache", "-", 2.4, "Adaptive (ours)"),
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall by decay, what is gained, and slots along each stream that is here."""
    drawn = {line.name for line in result.series}
    here = [case for case in reversed(STREAMS) if f"{case.name}_demand" in drawn]
    decays = [by_decay(result)] if BGL in here else []
    return (*decays, gained(result), *(along(result, case) for case in here))


def by_decay(result: Result) -> Picture:
    """The sensitivity on BGL."""
    said = "; ".join(
        f"{row.label}: fixed {number(row.measures['fixed'].mean)}, adaptive "
        f"{number(row.measures['adaptive'].mean)}, worst case "
        f"{number(row.measures['worst case'].mean)}"
        for row in result.tables["decay"]
    )
    return Picture(
        "adaptive_real-decay",
        "BGL: recall against the tokens for which a use of a slot counts, 1 / (1 − decay). Rings: "
        "where each budget has the paper's number. They do not stand above one another. Dotted: "
        "slots that expire have no usage, and so no decay.",
        f"Recall of three budgets on BGL by how long a use counts. {said}.",
        lambda axes: recall_by_decay(axes, result),
        (6.6, 3.7),
        title="Recall against the reach of a use",
    )


def recall_by_decay(axes: Axes, result: Result) -> None:
    """A line per allocator, its name on the right, a ring where it crosses the paper's number."""
    rows = result.tables["decay"]
    at = [NEVER if isinf(lasts) else float(lasts) for lasts in HORIZONS]
    ends = {}
    for name, (role, stroke, width, label) in STROKES.items():
        recalls = [row.measures[name].mean for row in rows]
        axes.plot(at, recalls, stroke, color=svg.COLOURS[role], linewidth=width)
        ends[label] = (recalls[-1], role)
        for place in crossings(at, recalls, PAPER[name]):
            ring(axes, place, PAPER[name], 9)
            text = f"{PAPER[name]:.2f}"
            axes.annotate(text, (place, PAPER[name]), (7, 3), textcoords="offset points")
    expiring = next(row for row in result.tables["bgl"] if row.name == f"ttl{BGL.idles[-1]}")
    recall = expiring.measures["recall"].mean
    axes.axhline(recall, linestyle=":", color=svg.COLOURS["added"], linewidth=1.4)
    ends[expiring.label] = (recall, "added")
    falling = sorted(ends, key=lambda label: -ends[label][0])
    heights = spaced([ends[label][0] for label in falling], 0.035)
    for label, height in zip(falling, heights, strict=True):
        name_at(axes, label, height, ends[label][1])
    axes.set_xscale("log")
    axes.set_xlim(at[0], NEVER)
    ticks = [10, 20, 50, 100, 200, 500, 1000]
    axes.set_xticks([*ticks, NEVER], [*(f"{tick:,}" for tick in ticks), "ever"])
    axes.minorticks_off()
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("tokens for which a use counts (log scale)")
    axes.set_ylabel("recall")


def crossings(at: Sequence[float], heights: Sequence[float], level: float) -> list[float]:
    """Where a line crosses a level, on a log scale.

    >>> [round(place) for place in crossings([10, 1000], [1.0, 0.0], 0.5)]
    [100]
    """
    found = []
    for (left, before), (right, after) in pairwise(zip(at, heights, strict=True)):
        if (before - level) * (after - level) <= 0 and before != after:
            part = (before - level) / (before - after)
            found.append(exp(log(left) + part * (log(right) - log(left))))
    return found


def gained(result: Result) -> Picture:
    """The gains, as the paper counts and at equal cost."""
    rows = gains(result)
    said = "; ".join(f"{row.label}: {spread(row.measures['gain'])}" for row in rows)
    return Picture(
        "adaptive_real-gain",
        "Recall of the adaptive budget less that of another memory on the same keys, with the "
        "spread over seeds. Numbers: the matched budget, as the paper has it. Fixed and expiry: at "
        "equal slots per token. Rings: what the paper says.",
        f"Gain in recall of the adaptive budget. {said}.",
        lambda axes: gains_by_rival(axes, result),
        title="What the adaptive budget gains",
    )


def gains(result: Result) -> tuple[Row, ...]:
    """What was measured of the paper's comparisons, and of those at equal cost."""
    rows = (*result.tables["gain"], *result.tables["level"])
    return tuple(row for row in rows if row.measures)


def gains_by_rival(axes: Axes, result: Result) -> None:
    """A point with its spread per row, around zero."""
    rows = gains(result)[::-1]
    axes.axvline(0, color=svg.COLOURS["muted"], linewidth=1)
    for place, row in enumerate(rows):
        gain, colour = row.measures["gain"], svg.COLOURS[row.role]
        axes.errorbar(gain.mean, place, xerr=gain.sd, fmt=MARKS[row.role], color=colour, ms=6)
        if claimed := claim_on(result, row, "gain"):
            ring(axes, claimed.paper, place, 10)
    name_rows(axes, rows)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel("recall gained by the adaptive budget")


def along(result: Result, case: Stream) -> Picture:
    """Slots along a stream."""
    series = {line.name: line for line in result.series}
    drawn = [series[f"{case.name}_{name}"] for name in ("demand", *case.plotted)]
    said = "; ".join(f"{line.label} at most {number(max(line.y))}" for line in drawn)
    return Picture(
        f"adaptive_real-{case.name}",
        f"Slots held along {case.label}, the mean over keys. Shade: distinct items in the window, "
        "which are asked for when it ends.",
        f"Slots against tokens of {case.label}: {said}.",
        lambda axes: slots_along(axes, result, case),
        (6.6, 3.7),
        title=f"Slots held along {case.label}",
    )


def slots_along(axes: Axes, result: Result, case: Stream) -> None:
    """A line per memory over the shape of the demand, named at its end."""
    series = {line.name.removeprefix(f"{case.name}_"): line for line in result.series}
    roles = {row.name: row.role for row in result.tables[case.name]}
    demand = series["demand"]
    shade, items = (0.0, *demand.x), (demand.y[0], *demand.y)
    axes.fill_between(shade, items, step="pre", color=svg.COLOURS["grid"], linewidth=0)
    shown = sorted((series[name] for name in case.plotted), key=lambda line: -line.y[-1])
    highest = 1.06 * max(max(line.y) for line in (demand, *shown))
    heights = spaced([line.y[-1] for line in shown], 0.06 * highest)
    for line, height in zip(shown, heights, strict=True):
        role = roles[line.name.removeprefix(f"{case.name}_")]
        axes.plot(
            line.x, line.y, color=svg.COLOURS[role], linewidth=1.8 if role == "cache" else 1.2
        )
        name_at(axes, line.label, height, role)
    axes.set_xlim(0, demand.x[-1])
    axes.set_ylim(0, highest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("tokens")
    axes.set_ylabel("slots")


def name_at(axes: Axes, label: str, height: float, role: str) -> None:
    """A name to the right of the axes."""
    axes.annotate(
        label,
        (1.012, height),
        xycoords=("axes fraction", "data"),
        va="center",
        color=svg.COLOURS[role],
        weight="bold" if role == "cache" else "normal",
        annotation_clip=False,
    )
