"""``distinctkv parse``: the templates of logs, as a table or for another program."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import click

from . import inputs
from .io import Stop, file_errors, input_paths, lock_state, progress, standard_output, total_size


@click.command("parse")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per template and line.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="The N most frequent only.")
@click.option("--follow", is_flag=True, help="Go on as the file grows, through log rotation.")
@inputs.shared
def command(
    files: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
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
    from ..logs.listing import listing
    from . import rows, telling

    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms; choose one")
    if follow and len(files) > 1:
        raise click.UsageError(f"only one file can be followed, got {len(files)}")
    start = perf_counter()
    paths = input_paths(files)
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        job = inputs.begin(
            paths, header, state, budget, gain, follow=follow, stop=stop, cell=inputs.CELL
        )
        before = job.parser.seen
        with inputs.served(job, metrics) as publish, progress("parse", total_size(paths)) as update:
            for batch in job:
                job.take(batch)
                publish()
                text = f"{job.parser.seen:,} lines, {len(job.parser):,} templates"
                update(job.feed.passed, text=text)
        job.save()
        found = listing(job)
        telling.say(job, len(found), job.parser.seen - before, perf_counter() - start)
        if not as_json and not as_csv and sys.stdout.isatty():
            telling.show(found, top)
        else:
            (rows.write_csv if as_csv else rows.write_json)(found[:top])
    sys.exit(stop.status or int(bool(job.feed.damages)))
