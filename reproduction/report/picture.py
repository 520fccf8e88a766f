"""A figure in words and paint, and the strokes that all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ..result import Row
from . import svg

MARKS = {"paper": "o", "added": "s", "cache": "o"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: how to paint it, how large (inches), and what it says in words.

    The title, where there is one, stands above it: a few words, while the caption explains.
    """

    name: str
    caption: str
    alt: str
    paint: svg.Painter
    size: tuple[float, float] = (5.6, 3.7)
    title: str = ""

    def inline(self) -> str:
        """The figure as an element of the page."""
        return svg.inline(self._titled, self.size, self.name)

    def standalone(self) -> str:
        """The figure as an SVG file."""
        return svg.standalone(self._titled, self.size)

    def _titled(self, axes: Axes) -> None:
        self.paint(axes)
        if self.title:
            axes.set_title(self.title, loc="left", fontsize="medium", fontweight="bold", pad=10)


def spaced(heights: Sequence[float], gap: float) -> list[float]:
    """Heights moved down as little as keeps them ``gap`` apart; falling order is given and kept.

    >>> spaced([1.0, 0.98, 0.5], gap=0.05)
    [1.0, 0.95, 0.5]
    """
    placed: list[float] = []
    for height in heights:
        placed.append(min(height, placed[-1] - gap) if placed else height)
    return placed


def name_rows(axes: Axes, rows: Sequence[Row]) -> None:
    """The rows' labels up the side, in their colours."""
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0)
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_color(svg.COLOURS[row.role])


def ring(axes: Axes, x: float, y: float, size: float) -> None:
    """Where the paper has it."""
    ink = svg.COLOURS["ink"]
    axes.plot(x, y, "o", markersize=size, markerfacecolor="none", markeredgecolor=ink, zorder=4)
