"""The plots of the report: `Lines` against an axis, and `Dots` per row; as SVG.

A plot is a description: which lines or rows of a `Result` it shows, its axes and labels. ``draw``
paints it on Matplotlib axes, ``describe`` gives the same numbers as text for those who cannot see
it. Rows of the paper, rows added to it and the cache have one colour each (`COLOURS`); on the page
these are CSS variables, so that a figure follows light and dark. A ring is a number of the paper.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ..result import Result, Row, Series
from .text import claim_on, number, spread

COLOURS = {
    "ink": "#1f2328",
    "muted": "#66707c",
    "grid": "#e2e5e9",
    "paper": "#35608f",
    "added": "#7b61a8",
    "cache": "#c2410c",
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "distinctkv",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "grid.color": COLOURS["grid"],
    "legend.frameon": False,
    "legend.fontsize": 9,
}
MARKERS = {"paper": "o", "added": "s", "cache": "o"}
Rings = Callable[[Result], Iterable[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot; ``log`` is the base of a logarithmic one."""

    label: str
    limits: tuple[float, float] | None = None
    ticks: tuple[float, ...] = ()
    log: int = 0
    tick_labels: tuple[str, ...] | None = None

    def apply(self, axes: Axes, which: str) -> None:
        """Set up the ``x`` or the ``y`` of ``axes``."""
        axis = axes.xaxis if which == "x" else axes.yaxis
        if self.log:
            getattr(axes, f"set_{which}scale")("log", base=self.log)
            axis.set_minor_locator(NullLocator())
        if self.limits:
            axes.set(**{f"{which}lim": self.limits})
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        limits = getattr(axes, f"get_{which}lim")()
        if self.ticks:
            axis.set_ticks(self.ticks, self.tick_labels)
        label = self.label + " (log scale)" * bool(self.log)
        axes.set(**{f"{which}lim": limits, f"{which}label": label})  # ticks do not widen it


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot: its numbers, the role that colours it, and Matplotlib's format.

    It has its label at the right edge or in the key, unless ``names`` stand beside its points.
    """

    series: Series
    role: str
    style: str = "o-"
    width: float = 1.4
    filled: bool = True
    names: tuple[str, ...] = ()
    side: str = "right"  # of the points, where names stand

    def draw(self, axes: Axes, marks: bool) -> None:
        """The line with the spread over seeds; the cache is below, so that others stay visible."""
        colour, cache = COLOURS[self.role], self.role == "cache"
        plain = "--" if self.role == "ink" else "-"
        axes.errorbar(
            self.series.x,
            self.series.y,
            yerr=self.series.sd or None,
            fmt=self.style if marks else plain,
            color=colour,
            markerfacecolor=colour if self.filled else "none",
            linewidth=2.4 if cache and self.width > 1 else self.width,
            markersize=6.5 if cache else 4.5,
            elinewidth=1,
            zorder=2.5 if cache else 3,
            label=self.series.label or "_",
        )


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines against a common axis. With ``key`` their labels stand below, else at their ends."""

    lines: Callable[[Result], Sequence[Line]]
    x: Axis
    y: Axis
    key: bool = False
    rings: Rings = lambda result: ()
    levels: Callable[[Result], Sequence[tuple[str, float, str]]] = lambda result: ()
    shade: Callable[[Result], Series] | None = None  # as steps, behind the lines
    band: tuple[float, float] | None = None  # of x, behind the lines
    plain: bool = False  # without marks at the points

    def has_data(self, result: Result) -> bool:
        """Whether there is anything to draw."""
        return bool(self.lines(result))

    def draw(self, axes: Axes, result: Result) -> None:
        """Paint the plot."""
        lines = self.lines(result)
        if self.shade:
            steps = self.shade(result)
            places, heights = (0.0, *steps.x), (steps.y[0], *steps.y)
            axes.fill_between(places, heights, step="pre", color=COLOURS["grid"], linewidth=0)
        if self.band:
            axes.axvspan(*self.band, color=COLOURS["grid"], alpha=0.5, linewidth=0)
        labels = [(label, y, role) for label, y, role in self.levels(result)]
        for _, height, role in labels:
            axes.axhline(height, linestyle=":", color=COLOURS[role], linewidth=3, alpha=0.6)
        for line in lines:
            line.draw(axes, marks=not self.plain)
        self.x.apply(axes, "x")
        self.y.apply(axes, "y")
        axes.grid(visible=True, axis="y")
        for x, y in self.rings(result):
            _ring(axes, x, y)
        _name_points(axes, lines)
        if self.key:
            _key(axes)
        ends = [line for line in lines if not line.names and line.series.label]
        if self.key:
            ends = [line for line in ends if line.role == "muted"]
        _name_right(axes, [*labels, *((e.series.label, e.series.y[-1], e.role) for e in ends)])

    def describe(self, result: Result) -> str:
        """The first and the last number of every line."""
        return "; ".join(
            f"{line.series.label or line.names[0]}: {number(line.series.y[0])}"
            + f" to {number(line.series.y[-1])}" * (len(line.series.y) > 1)
            for line in self.lines(result)
            if line.series.label or line.names
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """How one measure of every row is drawn; the row decides the colour unless ``role`` does."""

    measure: str
    style: str = ""
    role: str = ""
    filled: bool = True
    label: str = ""
    size: float = 7
    spread: bool = True  # over seeds


@dataclass(frozen=True, slots=True)
class Dots:
    """Rows down the page, with a mark for each measure and a note at the right.

    ``stem`` joins the marks of a row, or with "zero" the first mark and 0. ``seeds`` also draws
    the series of the row's name, one faint mark for each number.
    """

    rows: Callable[[Result], Sequence[Row]]
    marks: tuple[Mark, ...]
    x: Axis
    stem: str = ""
    note: Callable[[Row], str] | None = None
    rule: float | None = None
    seeds: bool = False
    rings: bool = True
    staggered: bool = False

    def has_data(self, result: Result) -> bool:
        """Whether there is anything to draw."""
        return bool(self.rows(result))

    def draw(self, axes: Axes, result: Result) -> None:
        """Paint the plot."""
        rows = self.rows(result)[::-1]
        series = {line.name: line for line in result.series} if self.seeds else {}
        if self.rule is not None:
            axes.axvline(self.rule, color=COLOURS["muted"], linewidth=1)
        for place, row in enumerate(rows):
            self._stem(axes, place, row)
            for i, mark in enumerate(self.marks):
                shift = 0.2 * ((len(self.marks) - 1) / 2 - i) * self.staggered
                self._mark(axes, place + shift, row, mark, result)
            if row.name in series:
                colour, found = COLOURS[row.role], series[row.name].y
                axes.plot(found, [place] * len(found), "|", color=colour, ms=9, alpha=0.6)
        self.x.apply(axes, "x")
        self._label(axes, rows)

    def _stem(self, axes: Axes, place: float, row: Row) -> None:
        ends = [row.measures[mark.measure].mean for mark in self.marks]
        if self.stem:
            ends = [0.0, ends[0]] if self.stem == "zero" else ends
            axes.plot(ends, [place] * len(ends), color=COLOURS[row.role], linewidth=1.2)

    def _mark(self, axes: Axes, place: float, row: Row, mark: Mark, result: Result) -> None:
        measure, colour = row.measures[mark.measure], COLOURS[mark.role or row.role]
        axes.errorbar(
            measure.mean,
            place,
            xerr=measure.sd if mark.spread else None,
            fmt=mark.style or MARKERS[row.role],
            color=colour,
            markerfacecolor=colour if mark.filled else "none",
            markersize=mark.size,
            elinewidth=1,
        )
        claim = claim_on(result, row, mark.measure)
        if claim and self.rings:
            _ring(axes, claim.paper, place)

    def _label(self, axes: Axes, rows: Sequence[Row]) -> None:
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=True, axis="x")
        for text, row in zip(axes.get_yticklabels(), rows, strict=True):
            text.set_color(COLOURS[row.role])
        if self.note:
            for place, row in enumerate(rows):
                _name_at(axes, (1.02, place), self.note(row), "ink")
        named = [mark for mark in self.marks if mark.label]
        for mark in named:
            colour = COLOURS[mark.role or "ink"]
            fill = colour if mark.filled else "none"
            axes.plot([], [], mark.style or "o", color=colour, mfc=fill, label=mark.label)
        if named:
            _key(axes)

    def describe(self, result: Result) -> str:
        """Every mark of every row."""
        return "; ".join(
            f"{row.label}: "
            + ", ".join(
                f"{m.label or m.measure} {spread(row.measures[m.measure])}" for m in self.marks
            )
            for row in self.rows(result)
        )


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.plot(x, y, "o", ms=11, mfc="none", mec=COLOURS["ink"], zorder=4)


def _key(axes: Axes) -> None:
    """The labels of all but grey lines, below the axes, in their colours."""
    handles, labels = axes.get_legend_handles_labels()
    grey = COLOURS["muted"]
    shown = [
        (handle, label)
        for handle, label in zip(handles, labels, strict=True)
        if getattr(handle, "lines", [handle])[0].get_color() != grey
    ]
    figure = axes.get_figure(root=True)
    if shown and figure:
        figure.legend(
            *zip(*shown, strict=True),
            loc="outside lower left",
            ncols=int(figure.get_figwidth() // 2.5),
            labelcolor="linecolor",
        )


def _fraction(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """A point of the data as a part of the width and of the height of the axes."""
    fx, fy = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(fx), float(np.clip(fy, 0, 1))


def _line_height(axes: Axes) -> float:
    """The height of a line of text as a part of the height of the axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return 14 / (72 * (figure.get_figheight() - 1))


def spaced(heights: Sequence[float], gap: float) -> list[float]:
    """Heights moved down as little as keeps them ``gap`` apart; falling order is given and kept.

    >>> spaced([1.0, 0.98, 0.5], gap=0.05)
    [1.0, 0.95, 0.5]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(min(height, placed[-1] - gap) if placed else height)
    return placed


def _name_right(axes: Axes, labels: Iterable[tuple[str, float, str]]) -> None:
    """Labels at the right edge at the height of their y, moved apart where they would meet."""
    found = [(_fraction(axes, axes.get_xlim()[1], y)[1], text, role) for text, y, role in labels]
    found.sort(reverse=True)
    heights = spaced([height for height, *_ in found], _line_height(axes))
    for height, (_, text, role) in zip(heights, found, strict=True):
        _name_at(axes, (1.015, height), text, role, "axes fraction")


def _name_at(axes: Axes, place: tuple[float, float], text: str, role: str, y: str = "data") -> None:
    axes.annotate(
        text,
        place,
        xycoords=("axes fraction", y),
        va="center",
        color=COLOURS[role],
        weight="bold" if role == "cache" else "normal",
        annotation_clip=False,
    )


def _name_points(axes: Axes, lines: Sequence[Line]) -> None:
    """The names beside points; those at one x are moved apart."""
    columns: dict[tuple[int, str], list[tuple[float, float, str, str]]] = {}
    for line in lines:
        for x, y, name in zip(line.series.x, line.series.y, line.names, strict=False):
            fx, fy = _fraction(axes, x, y)
            columns.setdefault((round(50 * fx), line.side), []).append((fy, fx, name, line.role))
    for (_, side), found in columns.items():
        found.sort(key=lambda one: (one[0], one[3] == "cache"), reverse=True)
        heights = spaced([height for height, *_ in found], _line_height(axes))
        for height, (_, fx, name, role) in zip(heights, found, strict=True):
            axes.annotate(
                name,
                (fx, height),
                xycoords="axes fraction",
                xytext=(8 if side == "right" else -8, 0),
                textcoords="offset points",
                ha="left" if side == "right" else "right",
                va="center",
                color=COLOURS[role],
                weight="bold" if role == "cache" else "normal",
                fontsize=9,
            )


# Figures

TEXTS = tomllib.loads(Path(__file__).with_name("figures.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of one result; its name leads to its texts and its size."""

    name: str
    plot: Lines | Dots
    result: Result

    @property
    def title(self) -> str:
        """The words above it."""
        return str(TEXTS[self.name]["title"])

    @property
    def caption(self) -> str:
        """The text below it."""
        return str(TEXTS[self.name]["caption"])

    @property
    def alt(self) -> str:
        """The figure in words."""
        return f"{self.title}. {self.plot.describe(self.result)}."

    def figure(self, background: str = "#ffffff") -> Figure:
        """The figure as Matplotlib's object."""
        with mpl.rc_context(STYLE):
            figure = Figure(
                figsize=TEXTS[self.name].get("size", (5.6, 3.7)),
                layout="constrained",
                facecolor=background,
            )
            axes = figure.subplots()
            axes.set_facecolor("none")
            self.plot.draw(axes, self.result)
            axes.set_title(self.title, loc="left", fontsize="medium", fontweight="bold", pad=10)
        return figure

    def standalone(self) -> str:
        """An SVG file on white."""
        return self._svg("#ffffff")

    def inline(self) -> str:
        """An ``<svg>`` element for the page: ids of its own, no size, colours as CSS variables."""
        text = self._svg("none")
        text = text[text.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{self.name}-", text)
        text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
        text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
        for role, colour in COLOURS.items():
            text = text.replace(colour, f"var(--{role})")
        return text

    def _svg(self, background: str) -> str:
        out = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with mpl.rc_context(STYLE):
            self.figure(background).savefig(out, format="svg", metadata=nothing)
        return out.getvalue()
