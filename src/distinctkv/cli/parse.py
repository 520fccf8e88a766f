"""``distinctkv parse``: the templates of logs, as a table or for another program."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import click

from . import inputs
from .stopping import Stop, quiet_pipe


@click.command("parse")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--json", "form", flag_value="json", help="One JSON object per template and line.")
@click.option("--csv", "form", flag_value="csv", help="Comma-separated values.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="The N most frequent only.")
@click.option("--follow", is_flag=True, help="Go on as the file grows, through log rotation.")
@inputs.shared
def command(
    files: tuple[str, ...],
    form: str | None,
    top: int | None,
    follow: bool,
    header: str,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    metrics: int | None,
) -> None:
    """Find the templates of logs.

    Reads plain text, gzip, bzip2, xz and zst, whatever the names of the files. On a terminal it
    prints a table, else JSON lines. What is odd about lines (empty, cut, not UTF-8, ...) is
    counted, and never stops it. Ctrl-C prints what there is so far and keeps the state.
    """
    from ..streams.listing import listing
    from . import rows, telling

    start = perf_counter()
    paths = inputs.named(files)
    with Stop() as stop, quiet_pipe(), inputs.told():
        job = inputs.begin(
            paths, header, state, budget, gain, follow=follow, stop=stop, cell=inputs.CELL
        )
        before = job.parser.seen
        with inputs.served(job, metrics) as publish, telling.bar(job, paths) as advance:
            for batch in job:
                job.take(batch)
                publish()
                advance()
        job.save()
        telling.say(job, job.parser.seen - before, perf_counter() - start)
        found = listing(job)
        if form is None and sys.stdout.isatty():
            telling.show(found, top)
        else:
            (rows.write_csv if form == "csv" else rows.write_json)(found[:top])
    sys.exit(stop.status or int(bool(job.feed.damages)))
