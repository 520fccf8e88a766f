"""What ``distinctkv watch`` saw, on one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reproduction.report import svg
from reproduction.report.picture import Picture

from .. import __version__, snapshot
from ..logs.history import Sample
from ..logs.job import Job
from ..logs.listing import listing
from ..logs.novelties import Novelty
from ..logs.splitting import ODD
from .io import visible

BINS = 48  # bars of the timeline
ROWS = 1000  # templates in the table


def render(job: Job, newest: Sequence[Novelty]) -> str:
    """The page as text."""
    environment = Environment(
        loader=PackageLoader("distinctkv", "cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    rows = listing(job)
    return environment.get_template("report.html").render(
        name=", ".join(job.feed.names),
        facts=facts(job),
        pictures=pictures([*job.history.samples, Sample.of(job.parser)]),
        rows=rows[:ROWS],
        n_more=max(0, len(rows) - ROWS),
        newest=[*newest][::-1],
        timed=any(row.first_time for row in rows),
        version=__version__,
    )


def write(job: Job, newest: Sequence[Novelty], path: Path) -> None:
    """The page as a file, whole or not at all."""
    snapshot.replace(path, render(job, newest).encode())


def facts(job: Job) -> Mapping[str, str]:
    """What there is to say in numbers."""
    now = Sample.of(job.parser)
    header = ", ".join(job.header.fields) or job.header.pattern if job.header else "none"
    return {
        "lines": f"{now.lines:,}",
        "templates": f"{now.templates:,}",
        "templates opened or parted off": f"{now.opened:,}",
        "slots": f"{now.slots:,}",
        "budget": "no limit" if now.budget is None else f"{now.budget:,.0f} slots",
        "temperature": f"{now.temperature:.3f}",
        "header": header,
        **{f"lines {ODD[name]}": f"{n:,}" for name, n in job.tally.odd().items() if n},
    }


def pictures(samples: Sequence[Sample]) -> tuple[Picture, ...]:
    """When templates opened, and what was held."""
    last = samples[-1]
    return (
        Picture(
            "novelty",
            "New templates along the log. A burst far from the start is worth a look.",
            f"Templates opened against lines: {last.opened:,} in {last.lines:,} lines.",
            lambda axes: novelty(axes, samples),
            (6.2, 3.4),
        ),
        Picture(
            "slots",
            "Slots along the log: templates, and the words seen in them. Dashed: the budget, where "
            "there is one. Templates as they were held then; some turn out to be one in the end.",
            f"Slots against lines: {last.slots:,} slots, {last.templates:,} templates at the end.",
            lambda axes: slots(axes, samples),
            (6.2, 3.4),
        ),
    )


def novelty(axes: Axes, samples: Sequence[Sample]) -> None:
    """Templates opened in each of equal parts of the log."""
    edges, counts = bins(samples)
    width = edges[1] - edges[0]
    axes.bar(edges[:-1], counts, width=0.86 * width, align="edge", color=svg.COLOURS["cache"])
    axes.set_ylabel(f"new templates per {width:,.0f} lines")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _dress(axes, samples)


def bins(samples: Sequence[Sample]) -> tuple[list[float], list[int]]:
    """Edges of equal parts of the lines, and the templates opened between them.

    >>> rises = ((0, 0), (24, 7), (48, 9))
    >>> edges, counts = bins([Sample(lines, opened, 0, 0, None, 0.0) for lines, opened in rises])
    >>> edges[:3], counts[22:25], counts[-1]
    ([0.0, 1.0, 2.0], [0, 7, 0], 2)
    """
    lines = [0, *(one.lines for one in samples)]
    opened = [0, *(one.opened for one in samples)]
    edges = np.linspace(0, max(1, lines[-1]), BINS + 1)
    last = np.searchsorted(lines, edges[1:], side="right") - 1
    return edges.tolist(), np.diff([opened[place] for place in last], prepend=0).tolist()


def slots(axes: Axes, samples: Sequence[Sample]) -> None:
    """Slots, templates and the budget after each number of lines."""
    lines = [one.lines for one in samples]
    colours = svg.COLOURS
    axes.plot(lines, [one.slots for one in samples], color=colours["cache"], label="slots", lw=2)
    # The last sample is of templates that were worked out anew: it would fall off the others.
    held = [(one.lines, one.templates) for one in samples[:-1] or samples]
    axes.plot(*zip(*held, strict=True), color=colours["paper"], label="templates")
    granted = [(one.lines, one.budget) for one in samples if one.budget is not None]
    if granted:
        axes.plot(*zip(*granted, strict=True), "--", color=colours["cache"], lw=1.2, label="budget")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="best", fontsize=9)
    _dress(axes, samples)


def _dress(axes: Axes, samples: Sequence[Sample]) -> None:
    axes.set_xlim(0, max(1, samples[-1].lines))
    axes.set_xlabel("lines")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
