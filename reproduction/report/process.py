"""The figures of study ``process``."""

from __future__ import annotations

from math import floor, log10

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..result import Result, Series
from . import svg
from .picture import Picture
from .words import number, spread

# How each stream of the rule is drawn.
ROLES = {"types": "cache", "tables": "paper", "isotropic": "added"}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Tables of the process against ln N; slots of the rule on three streams."""
    slopes = "; ".join(
        f"{row.label}: slope {spread(row.measures['slope'])}" for row in result.tables["process"]
    )
    slots = "; ".join(
        f"{row.label} ({row.setting}): {number(row.measures['slots'].mean)} slots for "
        f"{number(row.measures['distinct'].mean)} distinct"
        for row in result.tables["rule"]
    )
    return (
        Picture(
            "process-tables",
            "Tables of the process against tokens (dots, the mean over runs). Lines: "
            "α ln(1 + N/α). Dotted: α ln N, which has the same slope and another level.",
            f"Tables against tokens, tokens on a log scale. {slopes}.",
            lambda axes: tables_of_the_process(axes, result),
            title="Tables of the process",
        ),
        Picture(
            "process-rule",
            "Slots that the rule opens on three streams: types that run out, tables of a process, "
            "and random directions that never repeat.",
            f"Slots against tokens, both on log scales. {slots}.",
            lambda axes: slots_of_the_rule(axes, result),
            title="Slots of the rule on three streams",
        ),
    )


def tables_of_the_process(axes: Axes, result: Result) -> None:
    """Dots on their law, for each alpha."""
    series = {line.name: line for line in result.series}
    ink, muted = svg.COLOURS["paper"], svg.COLOURS["muted"]
    for row in result.tables["process"]:
        alpha = row.name.removeprefix("alpha_")
        found, law, log = series[row.name], series[f"law_{alpha}"], series[f"log_{alpha}"]
        axes.plot(log.x, log.y, ":", color=muted, linewidth=1.2)
        axes.plot(law.x, law.y, color=ink, linewidth=1.2)
        axes.plot(found.x, found.y, "o", color=ink, markersize=3.5)
        _name_end(axes, found, row.label, ink)
    steepest = series[max(series, key=lambda name: series[name].y[-1] * name.startswith("log_"))]
    _name_end(axes, steepest, steepest.label, muted)
    _rule_tokens(axes, steepest.x[-1])
    axes.set_ylabel("tables")


def slots_of_the_rule(axes: Axes, result: Result) -> None:
    """A line per stream, named at its end."""
    series = {line.name: line for line in result.series}
    for name, role in ROLES.items():
        line, colour = series[name], svg.COLOURS[role]
        axes.plot(line.x, line.y, color=colour, linewidth=2.2 if role == "cache" else 1.6)
        _name_end(axes, line, f"{line.label}: {number(line.y[-1])}", colour)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _rule_tokens(axes, max(series[name].x[-1] for name in ROLES))
    axes.set_ylabel("slots (log scale)")


def _name_end(axes: Axes, line: Series, label: str, colour: str) -> None:
    place = (line.x[-1], line.y[-1])
    axes.annotate(
        label, place, xytext=(6, 0), textcoords="offset points", va="center", color=colour
    )


def _rule_tokens(axes: Axes, last: float) -> None:
    """Tokens in powers of ten, a grid, and room on the right for names."""
    axes.set_xscale("log")
    axes.set_xlim(1, last**1.4)
    axes.set_xticks([10.0**power for power in range(floor(log10(last)) + 1)])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("tokens (log scale)")
