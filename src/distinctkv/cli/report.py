"""The HTML page of ``distinctkv watch --report``: the templates of a log, the newest first."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from .. import __version__
from .io import visible

if TYPE_CHECKING:
    from ..logs.job import Job, TemplateRow

ROWS = 1000  # templates on the page
BINS = 60  # bars of the time line
ROW = Template(
    '<tr><td class="line">$template$example</td><td class="n">$count</td>'
    "<td><svg viewBox='0 0 100 8' preserveAspectRatio='none' aria-hidden='true'>"
    "<rect x='$left' y='2' width='$width' height='4'/></svg>"
    "<small>$first<br>$last</small></td></tr>"
)
FORMATS = (  # what is put before a time, and its format
    ("2000 ", "%Y %b %d %H:%M:%S"),
    ("", "%y%m%d %H%M%S"),
    ("", "%d/%b/%Y:%H:%M:%S %z"),
    ("", "%a %b %d %H:%M:%S %Y"),
)


def render(job: Job) -> str:
    """The page as text; it is one file and loads nothing."""
    rows = sorted(job.templates(), key=lambda row: -row.first_line)
    axis = time_axis(rows, job.parser.seen)
    page = Template(files(__package__).joinpath("report.html").read_text("utf-8"))
    script = re.search(r"<script>(.*?)</script>", page.template, re.DOTALL)
    digest = sha256(script[1].encode()).digest() if script else b""
    return page.substitute(
        script=base64.b64encode(digest).decode(),
        name=_text(", ".join(job.source.names)),
        lines=f"{job.parser.seen:,}",
        templates=f"{len(rows):,}",
        bars=_bars([axis(row)[0] for row in rows]),
        begin=_seen(rows, last=False),
        end=_seen(rows, last=True),
        rows="\n".join(_row(row, *axis(row)) for row in rows[:ROWS]),
        more=f"{len(rows) - ROWS:,} older templates are not shown." if len(rows) > ROWS else "",
        version=__version__,
    )


def time_axis(
    rows: Sequence[TemplateRow], n_lines: int
) -> Callable[[TemplateRow], tuple[float, float]]:
    """Where a template begins and ends on the axis, 0 to 1; by line if times cannot be read.

    Times in a format that is not known, or not in order, place a template by its lines.
    """
    spans = {row.id: (parse_time(row.first_time), parse_time(row.last_time)) for row in rows}
    times = [time for span in spans.values() for time in span if time is not None]
    begin, end = min(times, default=0.0), max(times, default=0.0)
    timed = end > begin and len(times) == 2 * len(spans)

    def place(row: TemplateRow) -> tuple[float, float]:
        first, last = spans[row.id]
        if timed and first is not None and last is not None and first <= last:
            return (first - begin) / (end - begin), (last - begin) / (end - begin)
        return (row.first_line - 1) / max(1, n_lines), row.last_line / max(1, n_lines)

    return place


def parse_time(text: str) -> float | None:
    """Seconds since 1970 of a time in a common format; UTC if it does not say.

    >>> parse_time("2024-05-01 10:00:00,500") - parse_time("2024-05-01T10:00:00Z")
    0.5
    >>> parse_time("yesterday")
    """
    if re.fullmatch(r"\d{10}(\.\d+)?", text):
        return float(text)
    try:
        time = datetime.fromisoformat(text.replace(",", ".").replace("/", "-"))
    except ValueError:
        for before, form in FORMATS:
            with suppress(ValueError):
                time = datetime.strptime(before + text, form)
                break
        else:
            return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _bars(places: Sequence[float]) -> str:
    """Templates that appeared in each part of the axis, as bars of an SVG."""
    counts = [0] * BINS
    for place in places:
        counts[min(BINS - 1, int(place * BINS))] += 1
    top = max(1, *counts)
    return "".join(
        f"<rect x='{number}' y='{40 - 40 * count / top:.2f}' width='.9' "
        f"height='{40 * count / top:.2f}'><title>{count} new</title></rect>"
        for number, count in enumerate(counts)
        if count
    )


def _row(row: TemplateRow, first: float, last: float) -> str:
    example = row.examples[0] if row.examples[0].split() != row.template.split() else ""
    return ROW.substitute(
        template=_text(row.template) or "(empty)",
        example=f"<small>{_text(example)}</small>" if example else "",
        count=f"{row.count:,}",
        left=f"{min(99.0, 100 * first):.2f}",  # what came last has a mark, too
        width=f"{max(1.0, 100 * (last - first)):.2f}",
        first=_text(row.first_time) or f"line {row.first_line:,}",
        last=_text(row.last_time) or f"line {row.last_line:,}",
    )


def _seen(rows: Sequence[TemplateRow], *, last: bool) -> str:
    """The label of the beginning or the end of the axis."""
    if not rows:
        return ""
    if last:
        row = max(rows, key=lambda row: row.last_line)
        return _text(row.last_time) or f"line {row.last_line:,}"
    row = min(rows, key=lambda row: row.first_line)
    return _text(row.first_time) or f"line {row.first_line:,}"


def _text(text: str) -> str:
    return escape(visible(text))
