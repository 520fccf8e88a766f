"""The plots of the report: `Lines`, `Points` and `Dots`, drawn as SVG.

A plot says which series or rows of a `Result` it shows, its axes and labels. ``draw`` paints it on
Matplotlib axes, ``describe`` gives the same numbers as text. Our colour is that of the cache and
of nothing else; the others take theirs by their place. On the page colours are CSS variables, so
that a figure follows light and dark. A ring is a number of the paper.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from math import inf
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ..result import Result, Row
from .text import claim_on, number, spread

OURS, MUTED = "ours", "muted"
# Colours of other series, in turn, have a number.
COLOURS = {
    "ink": "#1f2328",
    MUTED: "#66707c",
    "grid": "#e2e5e9",
    OURS: "#c2410c",
    "s1": "#35608f",
    "s2": "#13807a",
    "s3": "#7b61a8",
    "s4": "#6f7a1d",
    "s5": "#a14a76",
}
MARKERS = {OURS: "o", MUTED: "", "s1": "s", "s2": "^", "s3": "D", "s4": "v", "s5": "P"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "distinctkv",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS[MUTED],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": COLOURS[MUTED],
    "ytick.color": COLOURS[MUTED],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "grid.color": COLOURS["grid"],
    "legend.frameon": False,
}
WIDTH = 4.9  # inches: as many points as a phone has pixels, so text keeps its size there
LABEL = 23  # characters of a row's name on a line
Pairs = Callable[[Result], Iterable[tuple[float, float]]]


def nothing(result: Result) -> tuple[()]:
    """No rings, no levels."""
    return ()


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a plot; ``log`` is the base of a logarithmic one."""

    label: str
    limits: tuple[float, float] | None = None
    ticks: tuple[float, ...] = ()
    log: int = 0
    tick_labels: tuple[str, ...] | None = None

    def apply(self, axes: Axes, which: str) -> None:
        """Set up the ``x`` of ``axes``, or the ``y``, whose label stands above the axis."""
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
        axes.set(**{f"{which}lim": limits})  # ticks do not widen it
        label = self.label + " (log scale)" * bool(self.log)
        if which == "x":
            axes.set_xlabel(label)
        else:
            axes.set_title(label, loc="left", fontsize=10, pad=8)


@dataclass(frozen=True, slots=True)
class Curve:
    """A line or a point of a plot: its label, its colour, its numbers."""

    label: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    sd: Sequence[float] = ()
    style: str = "-"
    filled: bool = True


Curves = Callable[[Result], Sequence[Curve]]


def within(curve: Curve, limits: tuple[float, float] | None) -> Curve:
    """The curve without its points beyond these limits of x, so that its label stays beside it.

    >>> within(Curve("SubGen", "s1", (64, 128, 256), (0.6, 0.9, 1.0)), (0, 130)).x
    (64, 128)
    """
    if limits is None:
        return curve
    shown = [i for i, x in enumerate(curve.x) if limits[0] <= x <= limits[1]]
    x, y, sd = (tuple(some[i] for i in shown if some) for some in (curve.x, curve.y, curve.sd))
    return replace(curve, x=x, y=y, sd=sd)


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines against an axis, their labels at their right ends."""

    curves: Curves
    x: Axis
    y: Axis
    rings: Pairs = nothing
    levels: Callable[[Result], Iterable[tuple[str, float]]] = nothing  # dotted, across
    band: tuple[float, float] | None = None  # of x, behind the lines

    def height(self, result: Result) -> float:
        """Inches."""
        return 3.3

    def draw(self, axes: Axes, result: Result) -> None:
        """Paint the plot."""
        cut = (within(curve, self.x.limits) for curve in self.curves(result))
        curves = [curve for curve in cut if curve.x]
        levels = tuple(self.levels(result))
        if self.band:
            axes.axvspan(*self.band, color=COLOURS["grid"], alpha=0.6, linewidth=0)
        for _, level in levels:
            axes.axhline(level, linestyle=":", color=COLOURS[MUTED], linewidth=2)
        for curve in curves:
            self._curve(axes, curve)
        _rings(axes, self.rings(result))
        self.x.apply(axes, "x")
        self.y.apply(axes, "y")
        axes.grid(visible=True, axis="y")
        edge = axes.get_xlim()[1]
        self._name(axes, [*curves, *(Curve(name, MUTED, (edge,), (y,)) for name, y in levels)])

    def _name(self, axes: Axes, curves: Sequence[Curve]) -> None:
        """Labels beyond the right edge, moved apart where they would meet, each tied to its end."""
        ends = [(_fraction(axes, one.x[-1], one.y[-1]), one) for one in curves if one.label]
        ends.sort(key=lambda end: end[0][1], reverse=True)
        labels = [textwrap.fill(curve.label, 20) for _, curve in ends]
        gap = _text_height(axes, max((label.count("\n") + 1 for label in labels), default=1))
        top = 1 + (_text_height(axes) - gap) / 2  # below the label of the axis
        heights = spaced([y for (_, y), _ in ends], gap, top, bottom=0)
        for (end, curve), label, height in zip(ends, labels, heights, strict=True):
            tie = {"arrowstyle": "-", "color": COLOURS[curve.colour], "linewidth": 0.7}
            tie |= {"shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
            _say(axes, label, end, curve.colour, {"xytext": (1.06, height), "arrowprops": tie})

    def _curve(self, axes: Axes, curve: Curve) -> None:
        """The line with the spread over seeds; ours is below, so that others stay visible."""
        colour, ours = COLOURS[curve.colour], curve.colour == OURS
        axes.errorbar(
            curve.x,
            curve.y,
            yerr=curve.sd or None,
            linestyle=curve.style,
            marker=MARKERS[curve.colour] if len(curve.x) < 20 else "",
            color=colour,
            markerfacecolor=colour if curve.filled else "none",
            linewidth=2.6 if ours else 1.4,
            markersize=6 if ours else 4.5,
            elinewidth=1,
            zorder=2.5 if ours else 3,
        )

    def describe(self, result: Result) -> str:
        """The first and the last number of every line."""
        return "; ".join(
            f"{curve.label}: {number(curve.y[0])}"
            + f" to {number(curve.y[-1])}" * (len(curve.y) > 1)
            for curve in self.curves(result)
            if curve.label
        )


@dataclass(frozen=True, slots=True)
class Points(Lines):
    """Points, their labels beside them: at the right, or for those in ``left`` at the left."""

    left: tuple[str, ...] = ()

    def _name(self, axes: Axes, curves: Sequence[Curve]) -> None:
        """Those of about one x are moved apart where they would meet."""
        columns: dict[tuple[bool, int], list[tuple[float, float, Curve]]] = {}
        for curve in curves:
            x, y = _fraction(axes, curve.x[0], curve.y[0])
            columns.setdefault((curve.label in self.left, round(20 * x)), []).append((y, x, curve))
        for (left, _), column in columns.items():
            column.sort(key=lambda one: one[0], reverse=True)
            heights = spaced([y for y, *_ in column], _text_height(axes))
            side, align = (-9, "right") if left else (9, "left")
            for (_, x, curve), height in zip(column, heights, strict=True):
                place = {"xytext": (side, 0), "textcoords": "offset points", "ha": align}
                _say(axes, curve.label, (x, height), curve.colour, place)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a measure of every row is drawn; without a colour ours is ours and others are `s1`."""

    measure: str
    label: str = ""
    colour: str = ""
    filled: bool = True
    size: float = 7
    spread: bool = True  # over seeds


@dataclass(frozen=True, slots=True)
class Dots:
    """Rows down the page, with a mark for each measure and a note at the right.

    ``stem`` joins the marks of a row, or with "zero" the first mark and 0.
    """

    rows: Callable[[Result], Sequence[Row]]
    marks: tuple[Mark, ...]
    x: Axis
    stem: str = ""
    note: Callable[[Row], str] | None = None
    rings: bool = True

    def draw(self, axes: Axes, result: Result) -> None:
        """Paint the plot."""
        rows = self.rows(result)[::-1]
        for place, row in enumerate(rows):
            colour = OURS if row.role == "cache" else "s1"
            ends = [row.measures[mark.measure].mean for mark in self.marks]
            if self.stem:
                ends = [0.0, ends[0]] if self.stem == "zero" else ends
                axes.plot(ends, [place] * len(ends), color=COLOURS[MUTED], linewidth=1)
            for mark in self.marks:
                self._mark(axes, place, row, mark, mark.colour or colour)
                claim = claim_on(result, row, mark.measure) if self.rings else None
                _rings(axes, [(claim.paper, place)] if claim else [])
        self.x.apply(axes, "x")
        self._label(axes, rows)

    def _mark(self, axes: Axes, place: float, row: Row, mark: Mark, colour: str) -> None:
        measure = row.measures[mark.measure]
        axes.errorbar(
            measure.mean,
            place,
            xerr=measure.sd if mark.spread else None,
            fmt=MARKERS[colour] or "o",
            color=COLOURS[colour],
            markerfacecolor=COLOURS[colour] if mark.filled else "none",
            markersize=mark.size,
            elinewidth=1,
            zorder=3.5 if colour == OURS else 3,
        )

    def _label(self, axes: Axes, rows: Sequence[Row]) -> None:
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_yticks(range(len(rows)), [""] * len(rows))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=True, axis="x")
        for place, row in enumerate(rows):
            colour = OURS if row.role == "cache" else "ink"
            beside: dict[str, Any] = {"xycoords": ("axes fraction", "data")}
            lines = textwrap.wrap(row.label, LABEL)
            for i, line in enumerate(lines):  # one by one, so that the browser aligns them
                shift = (-6, 12 * ((len(lines) - 1) / 2 - i))
                left = {"xytext": shift, "textcoords": "offset points", "ha": "right"}
                _say(axes, line, (0, place), colour, beside | left)
            if self.note:
                _say(axes, self.note(row), (1.03, place), "ink", beside)
        named = [mark for mark in self.marks if mark.label]
        for mark in named:
            colour = mark.colour or "s1"
            fill = COLOURS[colour] if mark.filled else "none"
            marker = MARKERS[colour] or "o"
            axes.plot([], [], marker, color=COLOURS[colour], mfc=fill, label=mark.label)
        figure = axes.get_figure(root=True)
        if named and figure:
            columns = 2 if sum(len(mark.label) + 4 for mark in named) > 50 else len(named)
            figure.legend(
                loc="outside upper left",
                ncols=columns,
                labelcolor="linecolor",
                handletextpad=0.1,
                columnspacing=1.2,
            )

    def height(self, result: Result) -> float:
        """Inches: an axis, a key, and the rows."""
        lines = [len(textwrap.wrap(row.label, LABEL)) for row in self.rows(result)]
        key = 0.25 * any(mark.label for mark in self.marks)
        return 0.75 + key + sum(0.13 + 0.14 * n for n in lines)

    def describe(self, result: Result) -> str:
        """Every mark of every row."""
        return "; ".join(
            f"{row.label}: "
            + ", ".join(
                f"{m.label or m.measure} {spread(row.measures[m.measure])}" for m in self.marks
            )
            for row in self.rows(result)
        )


def _rings(axes: Axes, places: Iterable[tuple[float, float]]) -> None:
    for x, y in places:
        axes.plot(x, y, "o", ms=11, mfc="none", mec=COLOURS["ink"], zorder=4)


# Labels


def _fraction(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """A point of the data as a part of the width and of the height of the axes."""
    fx, fy = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(fx), float(np.clip(fy, 0, 1))


def spaced(
    heights: Sequence[float], gap: float, top: float = inf, bottom: float = -inf
) -> list[float]:
    """Heights moved as little as keeps them ``gap`` apart; falling order is given and kept.

    Those that meet are spread about their middle, but between ``bottom`` and ``top``.

    >>> spaced([1.0, 0.98, 0.5], gap=0.1), spaced([1.0, 0.98, 0.5], gap=0.1, top=1.0)
    ([1.04, 0.94, 0.5], [1.0, 0.9, 0.5])
    """
    groups: list[list[float]] = []  # the heights that one block wants
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _top(groups[-1], gap) > _bottom(groups[-2], gap) - gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = [_top(group, gap) - i * gap for group in groups for i in range(len(group))]
    for i in range(len(placed)):
        placed[i] = min(placed[i], top)
        top = placed[i] - gap
    for i in reversed(range(len(placed))):
        placed[i] = round(max(placed[i], bottom), 9)
        bottom = placed[i] + gap
    return placed


def _top(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) + gap * (len(group) - 1) / 2


def _bottom(group: Sequence[float], gap: float) -> float:
    return _top(group, gap) - gap * (len(group) - 1)


def _text_height(axes: Axes, lines: int = 1) -> float:
    """The height of lines of text as a part of the height of the axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return (2 + 12 * lines) / (72 * (figure.get_figheight() - 0.8))


def _say(
    axes: Axes, text: str, place: tuple[float, float], colour: str, options: Mapping[str, Any]
) -> None:
    """A text in or beside the axes, ours in bold."""
    axes.annotate(
        text,
        place,
        va="center",
        color=COLOURS[colour],
        weight="bold" if colour == OURS else "normal",
        annotation_clip=False,
        **{"xycoords": "axes fraction", **options},
    )


# Figures


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot of one result, with the text below it."""

    name: str
    plot: Lines | Dots
    caption: str
    result: Result

    @property
    def alt(self) -> str:
        """The figure in words."""
        return f"{self.caption} {self.plot.describe(self.result)}."

    def figure(self, background: str = "none") -> Figure:
        """The figure as Matplotlib's object."""
        with mpl.rc_context(STYLE):
            figure = Figure(
                figsize=(WIDTH, self.plot.height(self.result)),
                layout="constrained",
                facecolor=background,
            )
            axes = figure.subplots()
            axes.set_facecolor("none")
            self.plot.draw(axes, self.result)
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
        text = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", text, count=1)
        for name, colour in COLOURS.items():
            text = text.replace(colour, f"var(--{name})")
        return text

    def _svg(self, background: str) -> str:
        out = StringIO()
        nameless = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with mpl.rc_context(STYLE):
            self.figure(background).savefig(out, format="svg", metadata=nameless)
        return out.getvalue()
