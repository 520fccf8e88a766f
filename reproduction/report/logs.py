"""The figures of study ``logs``."""

from __future__ import annotations

from matplotlib.axes import Axes

from ..result import Result, Row
from ..studies.log_parsers import PAPER_TAU
from ..studies.logs import RULES, TAUS, rule_name
from . import svg
from .picture import Picture, ring, spaced
from .words import claim_on, number, spread

# How each parser is drawn: colour, mark, whether it is filled.
STYLES = {
    "bare_30": ("paper", "^", False),
    "drain3": ("added", "s", False),
    "drain3_masked": ("added", "s", True),
    "drain3_best": ("added", "D", True),
    "ours": ("cache", "o", True),
}
STROKES = {"numbers_alike": "-", "in_place": "--", "bags": ":"}


def pictures(result: Result) -> tuple[Picture, ...]:
    """GA by system; then the bare rule by threshold, where HDFS is here."""
    hdfs = [row for row in result.tables["bare"] if row.measures]
    return (by_system(result), *([by_threshold(result)] if hdfs else []))


def by_system(result: Result) -> Picture:
    """Every parser on every system."""
    said = "; ".join(
        f"{row.label}: {number(row.measures['GA'].mean)}"
        for row in result.tables["average"]
        if row.measures
    )
    return Picture(
        "logs-ga",
        "Grouping accuracy by system: the share of lines whose group is just that of the truth. "
        "One setting for all systems. The parser's rules were written with these systems in view.",
        f"Grouping accuracy by system and parser. The mean over systems: {said}.",
        lambda axes: ga_by_system(axes, result),
        (6.6, 5.0),
        title="Grouping accuracy by system",
    )


def ga_by_system(axes: Axes, result: Result) -> None:
    """A line per system, a mark per parser; the mean over systems below."""
    shown = {row.name: row for row in result.tables["ga"] if row.measures}
    means = {row.name: row.measures for row in result.tables["average"]}
    systems = [*next(iter(shown.values())).measures]
    heights = [-1.4, *range(len(systems))]
    for name, (colour, mark, filled) in STYLES.items():
        if name not in shown:
            continue
        found = shown[name].measures
        values = [means[name]["GA"].mean, *(found[system].mean for system in reversed(systems))]
        axes.plot(
            values,
            heights,
            mark,
            color=svg.COLOURS[colour],
            markerfacecolor=svg.COLOURS[colour] if filled else "none",
            markersize=8 if name == "ours" else 6.5,
            label=shown[name].label,
            clip_on=False,
        )
    axes.set_yticks(heights, ["mean", *reversed(systems)])
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1)
    axes.grid(visible=True)
    axes.set_xlabel("grouping accuracy")
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.18, -0.1), ncols=2, frameon=False, reverse=True
    )


def by_threshold(result: Result) -> Picture:
    """The bare rule on HDFS."""
    said = "; ".join(
        f"{row.label}: GA {number(row.measures['HDFS GA'].mean)}, "
        f"{spread(row.measures['HDFS found'])} templates"
        for row in result.tables["bare"]
    )
    return Picture(
        "logs-bare",
        "HDFS by the bare rule: grouping accuracy against tau, by what makes two lines alike. "
        "Ring: the paper's .89. The broad line is our parser, at its one setting.",
        f"Grouping accuracy of the bare rule on HDFS, by tau. {said}.",
        lambda axes: ga_by_threshold(axes, result),
        title="The bare rule on HDFS",
    )


def ga_by_threshold(axes: Axes, result: Result) -> None:
    """A line per similarity, named at its end, and a ring at the paper's number."""
    rows = {row.name: row for row in result.tables["bare"]}
    ours = next(row for row in result.tables["systems"] if row.name == "HDFS")
    ends: dict[str, tuple[float, str]] = {"LogParser (ours)": (ours.measures["GA"].mean, "cache")}
    # A broad line, so that what runs along it stays in sight.
    axes.axhline(ours.measures["GA"].mean, color=svg.COLOURS["cache"], linewidth=6, alpha=0.35)
    for rule, stroke in STROKES.items():
        points = [rows[rule_name(rule, tau)] for tau in TAUS]
        heights = [row.measures["HDFS GA"].mean for row in points]
        axes.plot(TAUS, heights, stroke, marker="o", ms=4, color=svg.COLOURS["paper"])
        ends[RULES[rule]] = (heights[-1], "paper")
    _ring_paper(axes, result, rows[rule_name("numbers_alike", PAPER_TAU)])
    falling = sorted(ends, key=lambda label: -ends[label][0])
    places = spaced([ends[label][0] for label in falling], 0.055)
    for label, height in zip(falling, places, strict=True):
        colour = svg.COLOURS[ends[label][1]]
        axes.annotate(
            label, (TAUS[-1] + 0.012, height), va="center", color=colour, annotation_clip=False
        )
    axes.set_xlim(TAUS[0], TAUS[-1])
    axes.set_ylim(0.2, 1.04)
    axes.set_xticks(TAUS, [f"{tau:g}" for tau in TAUS])
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("tau")
    axes.set_ylabel("grouping accuracy")


def _ring_paper(axes: Axes, result: Result, row: Row) -> None:
    claimed = claim_on(result, row, "HDFS GA")
    if claimed:
        ring(axes, PAPER_TAU, claimed.paper, 12)
