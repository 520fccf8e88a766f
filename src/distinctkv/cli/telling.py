"""What ``parse`` tells people: a bar while it reads, a summary, a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from . import rows

if TYPE_CHECKING:
    from ..logs.job import Job
    from ..logs.listing import Row

ROWS = 40  # of a table, if not asked for more


def say(job: Job, templates: int, lines: int, seconds: float) -> None:
    """A summary on standard error."""
    from ..logs.splitting import ODD

    parser = job.parser
    rate = f" ({lines / seconds:,.0f} lines/s)" if lines else ""
    told = [f"lines: {lines:,} in {seconds:.1f} s{rate}"]
    if parser.seen > lines:
        told[0] += f", {parser.seen:,} with those before"
    told.append(f"templates: {templates:,}")
    if job.header is not None:
        told.append(f"header: {', '.join(job.header.fields) or job.header.pattern}")
    elif job.timed is not None:
        share = f"; {job.timed:.0%} of the first lines begin with a time" if job.timed else ""
        told.append(f"header: none found{share}")
    odd = [f"{n:,} {ODD[name]}" for name, n in job.tally.odd().items() if n]
    if odd:
        told.append(f"odd lines: {', '.join(odd)}")
    if parser.forgotten:
        told.append(f"lines in templates that the budget did not keep: {parser.forgotten:,}")
    if job.feed.rotations:
        told.append(f"times that another file took the name: {job.feed.rotations:,}")
    told += [
        f"{name} is damaged, read up to there: {why}" for name, why in job.feed.damages.items()
    ]
    told += warnings(job)
    for line in told:
        click.echo(line, err=True)


def warnings(job: Job) -> Iterator[str]:
    """What makes the templates doubtful."""
    tally = job.tally
    if job.header is not None and not job.header.fields and 2 * tally.headerless > tally.lines:
        yield (
            f"warning: {tally.headerless:,} of {tally.lines:,} lines do not begin with the header "
            "given; check --header"
        )
    if 2 * tally.nul > tally.lines:
        yield "warning: this looks like binary data; most lines have NUL bytes in them"
    elif 2 * tally.undecodable > tally.lines:
        yield (
            "warning: this looks like binary data, or text that is not in UTF-8; "
            "if it is text, iconv -f LATIN1 -t UTF-8, or whatever it is in, makes that of it"
        )


def show(found: Sequence[Row], top: int | None) -> None:
    """The table, and what is not in it."""
    if not found:
        return
    from rich.console import Console

    shown = found[: top or ROWS]
    console = Console(highlight=False)
    console.print(rows.table(shown, console.width))
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown):,} more templates; --top {len(found)} shows them all")
