"""What ``parse`` tells people: a bar while it reads, a summary, a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from . import inputs, rows

if TYPE_CHECKING:
    from ..streams.job import Job
    from ..streams.listing import Row

ROWS = 40  # of a table, if not asked for more


@contextmanager
def bar(job: Job, paths: list[str]) -> Iterator[Callable[[], None]]:
    """A progress bar by bytes, on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[lines]:,} lines, {task.fields[templates]:,} templates"),
        TimeRemainingColumn(),
    )
    total = inputs.size(paths)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("parse", total=total, lines=0, templates=0)

        def advance() -> None:
            lines, templates = job.parser.seen, len(job.parser)
            progress.update(task, completed=job.feed.passed, lines=lines, templates=templates)

        yield advance


def say(job: Job, lines: int, seconds: float) -> None:
    """A summary on standard error."""
    from ..streams.splitting import ODD

    parser = job.parser
    rate = f" ({lines / seconds:,.0f} lines/s)" if lines else ""
    told = [f"lines: {lines:,} in {seconds:.1f} s{rate}"]
    if parser.seen > lines:
        told[0] += f", {parser.seen:,} with those before"
    told.append(f"templates: {len(parser):,}")
    if job.header is not None:
        told.append(f"header: {', '.join(job.header.fields) or job.header.pattern}")
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
    for line in told:
        click.echo(line, err=True)


def show(found: Sequence[Row], top: int | None) -> None:
    """The table, and what is not in it."""
    from rich.console import Console

    shown = found[: top or ROWS]
    console = Console(highlight=False)
    console.print(rows.table(shown, console.width))
    if len(shown) < len(found):
        click.echo(f"{len(found) - len(shown):,} more templates; --top {len(found)} shows them all")
