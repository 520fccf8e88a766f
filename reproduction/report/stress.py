"""The figures of study ``stress``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..result import Result, Row, Series
from . import svg
from .picture import Picture, spaced
from .words import number, spread

# Role, mark and word of the settings compared in the first figure.
COMPARED = {"plain": ("paper", "o"), "safe": ("added", "s"), "chosen": ("cache", "D")}
GOOD = 0.99  # recall from which a mark is filled
Roles = Mapping[str, str]
ALIKE: Roles = {"plain": "paper", "tau .1": "added", "centred": "cache"}
DRIFT: Roles = {
    "plain": "paper",
    "mean key": "added",
    "ema key, pace .1": "added",
    "ema key, pace .3": "cache",
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Plain, safe and chosen under every strain; then the strains one by one."""

    def told(rows: Sequence[Row]) -> str:
        return "; ".join(
            f"{row.label}: " + ", ".join(f"{m} {spread(row.measures[m])}" for m in row.measures)
            for row in rows
        )

    def ends(lines: Sequence[Series]) -> str:
        return "; ".join(f"{s.label}: from {number(s.y[0])} to {number(s.y[-1])}" for s in lines)

    alike, drift = _lines(result, "alike.recall", ALIKE), _lines(result, "drift.slots/item", DRIFT)
    taus = [line for line in result.series if line.name.startswith("taus.slots")]
    return (
        Picture(
            "stress-choice",
            "Recall where each strain is greatest, and on the right the slots per item: with the "
            "paper's setting, with one safe setting for all, and with the setting to choose.",
            f"Recall and slots per item under each strain. {told(result.tables['choice'])}.",
            lambda axes: choice(axes, result),
            (7.6, 3.7),
            title="Recall under the greatest strain",
        ),
        Picture(
            "stress-alike",
            "Recall against the cosine that all items have in common.",
            f"Recall against the common cosine. {ends(alike)}.",
            lambda axes: against(axes, alike, ALIKE, "common cosine", "recall"),
            title="Items that are alike",
        ),
        Picture(
            "stress-taus",
            f"Slots per item against tau. Filled: recall of {GOOD} or more; open: less.",
            f"Slots per item against tau, log scale. {ends(taus)}.",
            lambda axes: slots_against_tau(axes, result),
            title="Slots against tau",
        ),
        Picture(
            "stress-drift",
            "Slots per item against the angle by which items turn while the stream runs.",
            f"Slots per item against drift. {ends(drift)}.",
            lambda axes: against(axes, drift, DRIFT, "degrees", "slots per item"),
            title="Items that turn",
        ),
        Picture(
            "stress-values",
            "Recall by value policy when keys are bound again (open), and when one value in five "
            "is wrong (filled).",
            "Recall by value policy. "
            f"{told(result.tables['rebound'])}; {told(result.tables['mislabelled'])}.",
            lambda axes: values(axes, result),
            title="Values that change or err",
        ),
    )


def choice(axes: Axes, result: Result) -> None:
    """Three marks a strain, and their slots at the side."""
    rows = result.tables["choice"][::-1]
    for place, row in enumerate(rows):
        axes.plot([0, 1], [place, place], color=svg.COLOURS["grid"], linewidth=1, zorder=0)
        for i, (name, (role, mark)) in enumerate(COMPARED.items()):
            recall, slots = row.measures[f"{name} recall"], row.measures[f"{name} slots"]
            # Marks that would hide each other stand one above the other.
            axes.plot(recall.mean, place + 0.2 * (1 - i), mark, color=svg.COLOURS[role], ms=6)
            axes.annotate(
                f"{slots.mean:.2f}",
                (1.1 + 0.14 * i, place),
                ha="center",
                va="center",
                color=svg.COLOURS[role],
            )
    for i, (name, (role, _)) in enumerate(COMPARED.items()):
        axes.annotate(
            name,
            (1.1 + 0.14 * i, len(rows) - 0.5),
            ha="center",
            color=svg.COLOURS[role],
            weight="bold",
        )
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.02, 1.45)
    axes.set_ylim(-0.6, len(rows) - 0.1)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.spines["bottom"].set_bounds(-0.02, 1.02)
    axes.set_xlabel("recall; at the right, slots per item")


def against(axes: Axes, lines: Sequence[Series], roles: Roles, x: str, y: str) -> None:
    """A line for each setting, named at its end."""
    for line in lines:
        axes.plot(line.x, line.y, "o-", color=svg.COLOURS[roles[line.label]], ms=4, lw=1.6)
    low, high = axes.get_ylim()
    _name_ends(axes, lines, roles, [line.y[-1] for line in lines], 0.06 * (high - low))
    axes.set_xticks(lines[0].x)
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def slots_against_tau(axes: Axes, result: Result) -> None:
    """A line for each noise; a mark is open where items are lost."""
    series = {line.name: line for line in result.series}
    lines = [series[f"taus.slots/item.{noise}"] for noise in ("0.5", "0.1")]
    roles = {lines[0].label: "added", lines[1].label: "paper"}
    axes.set_yscale("log")
    for line in lines:
        colour = svg.COLOURS[roles[line.label]]
        recalls = series[line.name.replace("slots/item", "recall")].y
        axes.plot(line.x, line.y, color=colour, linewidth=1.4, zorder=1)
        for x, y, recall in zip(line.x, line.y, recalls, strict=True):
            fill = colour if recall >= GOOD else "none"
            axes.plot(x, y, "o", color=colour, markerfacecolor=fill, ms=6, zorder=2)
    heights = spaced([log(line.y[0]) for line in lines], 0.2)
    for line, height in zip(lines, heights, strict=True):
        place = (line.x[0] + 0.03, exp(height) * 1.12)
        axes.annotate(line.label, place, color=svg.COLOURS[roles[line.label]])
    axes.set_yticks([0.125, 0.25, 0.5, 1, 2, 4])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("tau")
    axes.set_ylabel("slots per item (log scale)")


def values(axes: Axes, result: Result) -> None:
    """Two marks a policy."""
    names = [row.name.split(", ", 1)[1] for row in result.tables["rebound"]][::-1]
    for table, open_mark in (("rebound", True), ("mislabelled", False)):
        for place, row in enumerate(result.tables[table][::-1]):
            colour = svg.COLOURS["cache" if row.role == "cache" else "paper"]
            fill = "none" if open_mark else colour
            recall = row.measures["recall"].mean
            axes.plot(recall, place, "o", color=colour, markerfacecolor=fill, ms=8, zorder=3)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.04, 1.04)
    axes.grid(visible=True)
    axes.set_xlabel("recall")


def _lines(result: Result, start: str, settings: Roles) -> list[Series]:
    """The lines of these settings, the one that ends highest first."""
    found = [s for s in result.series if s.name.startswith(start) and s.label in settings]
    return sorted(found, key=lambda line: -line.y[-1])


def _name_ends(
    axes: Axes, lines: Sequence[Series], roles: Roles, heights: Sequence[float], gap: float
) -> None:
    for line, height in zip(lines, spaced(heights, gap), strict=True):
        axes.annotate(
            line.label,
            (line.x[-1], height),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=svg.COLOURS[roles[line.label]],
            annotation_clip=False,
        )
