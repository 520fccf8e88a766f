"""The figures of study ``cost``."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..result import Result, Row, Series
from . import svg
from .picture import Picture, ring, spaced
from .words import claim_on, number

# The role that colours a line, and what it is called.
Line = tuple[str, str]
ATTENTION, CACHE = ("paper", "attention"), ("cache", "cache")
SPEEDUPS = {"speedup.speed-up": ("cache", "batch"), "speedup.speed-up alone": ("added", "alone")}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Speed-up against redundancy; then the times of a read, and of the build."""

    def told(*names: str) -> str:
        """The first and the last number of every line of these names."""
        return "; ".join(
            f"{line.label}, {_kind(line).rpartition('.')[2]}: from "
            f"{number(line.y[0])} to {number(line.y[-1])}"
            for line in result.series
            if _kind(line) in names
        )

    return (
        Picture(
            "cost-speedup",
            "How many times faster the cache is read than attention over every token, against the "
            "repeats of each item. Rings: the paper's two numbers, of another machine.",
            f"Speed-up against repeats, log scales. {told(*SPEEDUPS)}.",
            lambda axes: speedup(axes, result),
            (7.6, 3.7),
            title="How much faster the cache is read",
        ),
        Picture(
            "cost-read",
            "Microseconds a query, in a batch: attention over every token, and the cache.",
            f"Time of a read against tokens, log scales. {told('batch.attention', 'batch.cache')}.",
            lambda axes: times(axes, result, {"batch.attention": ATTENTION, "batch.cache": CACHE}),
            title="Time of a read",
        ),
        Picture(
            "cost-build",
            "Microseconds a token to build the cache, and to append to attention. A flat line is a "
            "cost that grows linearly with the stream.",
            f"Time to take in a token, log scales. {told('build.append', 'build.build')}.",
            lambda axes: times(axes, result, {"build.build": CACHE, "build.append": ATTENTION}),
            title="Time to build",
        ),
    )


def speedup(axes: Axes, result: Result) -> None:
    """A line for each size and way of asking, named at its end."""
    _draw(axes, result, SPEEDUPS)
    for row in result.tables["speedup"]:
        _ring_paper(axes, result, row)
    axes.set_xscale("log", base=2)
    axes.set_xticks(result.series[0].x)
    _write_plainly(axes)
    axes.set_xlabel("repeats of each item (log scale)")
    axes.set_ylabel("times faster (log scale)")


def times(axes: Axes, result: Result, lines: Mapping[str, Line]) -> None:
    """A line for each size and memory, named at its end."""
    axes.set_xscale("log")
    _draw(axes, result, lines)
    _write_plainly(axes)
    axes.set_xlabel("tokens (log scale)")
    axes.set_ylabel("microseconds (log scale)")


def _draw(axes: Axes, result: Result, lines: Mapping[str, Line]) -> None:
    drawn = [line for line in result.series if _kind(line) in lines]
    drawn.sort(key=lambda line: -line.y[-1])
    axes.set_yscale("log")
    for line in drawn:
        colour = svg.COLOURS[lines[_kind(line)][0]]
        axes.plot(line.x, line.y, "o-", color=colour, markersize=4, linewidth=1.6)
    low, high = map(log, axes.get_ylim())
    heights = spaced([log(line.y[-1]) for line in drawn], 0.062 * (high - low))
    end = max(line.x[-1] for line in drawn)
    for line, height in zip(drawn, heights, strict=True):
        role, words = lines[_kind(line)]
        axes.annotate(
            f"{words}, {line.label}",
            (end, exp(height)),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            color=svg.COLOURS[role],
            annotation_clip=False,
        )


def _kind(line: Series) -> str:
    """The name of a line without its size."""
    return line.name.split(".", 1)[1]


def _ring_paper(axes: Axes, result: Result, row: Row) -> None:
    claim = claim_on(result, row, "speed-up")
    if claim:
        repeats = float(row.name.rsplit("r", 1)[1])
        ring(axes, repeats, claim.paper, 11)


def _write_plainly(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="y")
