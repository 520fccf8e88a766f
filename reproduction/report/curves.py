"""Lines with error bars and a key, for figures in which many memories grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ..result import Series
from . import svg
from .picture import spaced


@dataclass(frozen=True, slots=True)
class Stroke:
    """How a line is drawn: the role that colours it, Matplotlib's format, width, size of marks."""

    role: str
    format: str
    width: float = 1.2
    mark: float = 4.5


def draw(axes: Axes, lines: Iterable[tuple[Series, Stroke]]) -> None:
    """Means with the spread over seeds, one line over another but the cache below."""
    for line, stroke in lines:
        axes.errorbar(
            line.x,
            line.y,
            yerr=line.sd,
            fmt=stroke.format,
            color=svg.COLOURS[stroke.role],
            linewidth=stroke.width,
            markersize=stroke.mark,
            elinewidth=1,
            # A rival in the very place of the cache stays to be seen.
            zorder=2.5 if stroke.role == "cache" else 3,
            label=line.label,
        )


def draw_faintly(axes: Axes, lines: Sequence[Series], label: str | None = None) -> None:
    """Thin grey lines; the first carries what the key says of all."""
    for line in lines:
        said = label if line is lines[0] else None
        axes.plot(line.x, line.y, color=svg.COLOURS["muted"], linewidth=0.8, label=said)


def name_ends(axes: Axes, lines: Sequence[Series], gap: float) -> None:
    """Names in grey, to the right of where lines end."""
    falling = sorted(lines, key=lambda line: -line.y[-1])
    heights = spaced([line.y[-1] for line in falling], gap)
    for line, height in zip(falling, heights, strict=True):
        place = (line.x[-1], height)
        axes.annotate(
            line.label,
            place,
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=svg.COLOURS["muted"],
        )


def name_points(axes: Axes, line: Series, names: Sequence[str], gap: float = 0.05) -> None:
    """A name in small type to the right of each point, all ``gap`` apart or more."""
    falling = sorted(zip(line.y, names, strict=True), reverse=True)
    heights = spaced([height for height, _ in falling], gap)
    for height, (_, name) in zip(heights, falling, strict=True):
        axes.annotate(
            name,
            (line.x[0], height),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=svg.COLOURS["muted"],
        )


def key(axes: Axes, place: tuple[float, float]) -> None:
    """Names of the lines in their colours, the last drawn first; ``place`` is its lower left."""
    axes.legend(
        loc=place,
        reverse=True,
        labelcolor="linecolor",
        frameon=False,
        fontsize=9,
        borderpad=0,
        labelspacing=0.3,
    )
