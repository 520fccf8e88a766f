"""``distinctkv watch``: what is new in a log, as it comes."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import click

from . import inputs
from .io import Stop, file_errors, input_paths, lock_state, standard_output

if TYPE_CHECKING:
    from ..logs.job import Job
    from ..logs.novelties import Novelty

CELL = 1 << 16  # bytes parsed between two looks at the clock
NEWEST = 200  # new templates that the report lists
REPORT = 60.0  # seconds between two writings of the report
PAGE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command("watch", short_help="Show a log as it grows, and what is new in it.")
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--alert", is_flag=True, help="Print new templates only, one JSON object per line.")
@click.option("--learn", is_flag=True, help="What is in the file already is not new.")
@click.option("--follow/--no-follow", default=True, help="Wait for more at the end (default).")
@click.option("--report", type=PAGE, metavar="PATH", help="Write what was seen to an HTML page.")
@inputs.shared
def command(
    file: str | None,
    alert: bool,
    learn: bool,
    follow: bool,
    report: Path | None,
    header: str,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    metrics: int | None,
) -> None:
    """Show a log as it grows: new templates, rate, temperature, slots.

    Follows a file through log rotation, or reads what comes through a pipe. If the output is not a
    terminal, it prints what --alert prints. Ctrl-C ends it.
    """
    from ..logs.listing import listing
    from . import telling
    from .view import View

    _check(report)
    start = perf_counter()
    newest: deque[Novelty] = deque(maxlen=NEWEST)
    paths = input_paths([file] if file else [])
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        job = inputs.begin(paths, header, state, budget, gain, follow=follow, stop=stop, cell=CELL)
        before, due = job.parser.seen, monotonic() + REPORT
        screen = View(job) if sys.stdout.isatty() and not alert else Alerts()
        with inputs.served(job, metrics) as publish, screen:
            if learn:
                job.learn()
            for found in watched(job):
                newest.extend(found)
                screen.show(found)
                publish()
                if report and monotonic() > due:
                    write(job, newest, report)
                    due = monotonic() + REPORT
        job.save()
    if report:
        write(job, newest, report)
    telling.say(job, len(listing(job)), job.parser.seen - before, perf_counter() - start)
    sys.exit(stop.status or int(bool(job.feed.damages)))


def watched(job: Job) -> Iterator[list[Novelty]]:
    """What is new in each batch; lines that were there when learning began are not."""
    from ..logs.novelties import novelties

    for batch in job:
        found = [*novelties(job, batch)]
        yield [novelty for novelty in found if novelty.number > job.silent]


class Alerts(AbstractContextManager["Alerts"]):
    """New templates for another program."""

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def show(self, found: Sequence[Novelty]) -> None:
        """Print them, and let them go at once."""
        for novelty in found:
            sys.stdout.write(json.dumps(novelty._asdict(), ensure_ascii=False) + "\n")
        if found:
            sys.stdout.flush()


def write(job: Job, newest: Sequence[Novelty], path: Path) -> None:
    """Write the report."""
    from .report import write as write_page

    try:
        write_page(job, newest, path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def _check(report: Path | None) -> None:
    """Refuse early, not after hours, when the report cannot be written."""
    if report is None:
        return
    from reproduction.__main__ import need_report

    need_report()
    if not report.parent.is_dir():
        raise click.BadParameter(f"there is no folder {report.parent}", param_hint="--report")
