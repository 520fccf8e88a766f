"""The figures of study ``llm``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from ..studies.llm import TASKS
from ..studies.result import Result
from . import svg
from .curves import Stroke, draw, key
from .picture import Picture
from .words import spread

# How each line is drawn; in the key from the last to the first.
STROKES: Mapping[str, Stroke] = {
    "random": Stroke("ink", "x:"),
    "streaming": Stroke("added", "v:"),
    "keydiff": Stroke("added", "s--"),
    "h2o": Stroke("added", "^-"),
    "rkv": Stroke("added", "D-"),
    "careful": Stroke("cache", "o:", width=2.0, mark=4.5),
    "ours": Stroke("cache", "o-", width=2.6, mark=7),
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """Accuracy against bytes, a figure for each kind of context."""
    return tuple(_picture(result, task, heading) for task, heading in TASKS.items())


def _picture(result: Result, task: str, heading: str) -> Picture:
    told = "; ".join(
        f"{row.label}, {row.setting}: {spread(row.measures['accuracy'])}, "
        f"{row.measures['bytes'].mean / 2**20:.1f} MiB"
        for row in result.tables[task]
    )
    return Picture(
        f"llm-{task}",
        f"{heading}. Accuracy of the answers against the bytes that the cache holds, with the "
        "spread over contexts.",
        f"Accuracy and bytes of each cache. {told}.",
        lambda axes: accuracy_against_bytes(axes, result, task),
        (7.6, 3.9),
        heading,
    )


def accuracy_against_bytes(axes: Axes, result: Result, task: str) -> None:
    """A line for each cache; the full cache is a level."""
    lines = {line.name: line for line in result.series}
    found = {row.name: row.measures for row in result.tables[task]}
    muted, ours = svg.COLOURS["muted"], svg.COLOURS["cache"]
    size = found["full"]["bytes"].mean
    axes.axhline(found["full"]["accuracy"].mean, color=muted, linewidth=1, label="Full cache")
    draw(axes, ((lines[f"{task}/{name}"], stroke) for name, stroke in STROKES.items()))
    sized = found["threshold"]
    place = sized["bytes"].mean, sized["accuracy"].mean
    label = "Distinct slots, at threshold 1"
    axes.plot(*place, "o", ms=11, color=ours, mfc="none", zorder=4, label=label)
    axes.set_xlim(0, size)
    axes.set_xticks([size * part for part in (0, 0.25, 0.5, 0.75, 1)], ["0", "¼", "½", "¾", "1"])
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel(f"bytes held, of {size / 2**20:.0f} MiB")
    axes.set_ylabel("accuracy")
    axes.grid(axis="y")
    key(axes, (0.5, 0.03))
