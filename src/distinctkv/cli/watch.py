"""``distinctkv watch``: new templates in a log, as it grows."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import click

from .io import Stop, file_errors, input_paths, lock_state, standard_output, visible
from .parse import open_job, print_summary, serve_metrics, shared_options, template_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from ..logs.alerts import Alert
    from ..logs.job import Job, TemplateRow

CHUNK = 1 << 16  # bytes parsed between two looks at the clock
REPORT = 60.0  # seconds between two writings of the report
REFRESH = 0.25  # seconds between two drawings of the view
WINDOW = 5.0  # seconds that the rate is an average over
PAGE = click.Path(dir_okay=False, writable=True, path_type=Path)
LEVELS = ("trace", "debug", "info", "notice", "warning", "error", "critical")
Show = Callable[[Sequence["Alert"]], None]


UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class Duration(click.ParamType[float]):
    """Seconds, or a number with a unit: 30, 30s, 5m, 2h, 1d."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, context: click.Context | None
    ) -> float:
        """The seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if found is None:
            self.fail(f"{value!r} is no duration; write for instance 30s, 5m or 2h", param, context)
        return float(found[1]) * UNITS[found[2]]


@click.command("watch", short_help="Show a log as it grows, and the new templates in it.")
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--alert", is_flag=True, help="Print only new templates, one JSON object per line.")
@click.option(
    "--times", type=click.IntRange(min=1), default=1, metavar="N",
    help="Alert when a new template has N lines. [default: 1]",
)  # fmt: skip
@click.option(
    "--within", type=Duration(), metavar="T", help="Its N lines must come within T: 30s, 5m."
)
@click.option(
    "--warmup", type=Duration(), default=0.0, metavar="T",
    help="No alerts for what is first seen within T of the first line.",
)  # fmt: skip
@click.option(
    "--level", type=click.Choice(LEVELS), metavar="LEVEL",
    help="Alert from this level on, for lines that name one: debug, info, warning, error, ...",
)  # fmt: skip
@click.option(
    "--baseline", is_flag=True, help="Give no alerts for lines that are already in the file."
)
@click.option(
    "--follow/--no-follow", default=True, help="Wait for more lines (default), or stop at the end."
)
@click.option(
    "--report",
    type=PAGE,
    metavar="PATH",
    help="Write a page of the templates, in HTML, every minute.",
)
@shared_options
def command(
    file: str | None,
    alert: bool,
    times: int,
    within: float | None,
    warmup: float,
    level: str | None,
    baseline: bool,
    follow: bool,
    report: Path | None,
    header: str,
    field: str | None,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    metrics: int | None,
) -> None:
    """Show a log as it grows: new templates, frequent templates, rate.

    Follows a file through log rotation, or reads a pipe. If the output is not a terminal, prints
    what --alert prints. Ctrl-C ends it and saves the state.

    A new template has one alert, some seconds or lines after its first line: when it is clear
    which of its words are values. Times are those of the lines, or of the clock if they have none.

    \b
    distinctkv watch app.log
    distinctkv watch app.log --alert --baseline --level warning
    distinctkv watch app.log --alert --times 5 --within 30s --warmup 5m
    """
    from ..logs.alerts import AlertRule

    if within is not None and times == 1:
        raise click.BadParameter("needs --times, the lines that must come", param_hint="--within")
    if report and not report.parent.is_dir():
        raise click.BadParameter(f"there is no folder {report.parent}", param_hint="--report")
    paths = input_paths([file] if file else [])
    if baseline and not os.path.isfile(paths[0]):
        raise click.BadParameter("needs a regular file", param_hint="--baseline")
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        job = open_job(
            *(paths, header, field, state, budget, gain),
            follow=follow,
            stop=stop,
            chunk=CHUNK,
            alert_rule=AlertRule(times, within, warmup, level or ""),
        )
        start = perf_counter()
        before, due = job.parser.seen, monotonic() + REPORT
        view = live_view(job) if sys.stdout.isatty() and not alert else alert_lines()
        with serve_metrics(job, metrics) as publish, view as show:
            if baseline:
                job.set_baseline()
            for batch in job:
                show(job.watch(batch))
                publish()
                if report and monotonic() > due:
                    write_report(job, report)
                    due = monotonic() + REPORT
            show(job.last_alerts())
        job.save()
        if report:
            write_report(job, report)
        n_lines, seconds = job.parser.seen - before, perf_counter() - start
        print_summary(job, len(job.templates()), n_lines, seconds)
    sys.exit(stop.status or int(bool(job.source.damages)))


def write_report(job: Job, path: Path) -> None:
    """Write the page, atomically."""
    from .. import snapshot
    from .report import render

    try:
        snapshot.replace(path, render(job).encode())
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def alert_lines() -> Iterator[Show]:
    """Print alerts as JSON lines, at once."""

    def show(alerts: Sequence[Alert]) -> None:
        for one in alerts:
            sys.stdout.write(json.dumps(one._asdict(), ensure_ascii=False) + "\n")
        if alerts:
            sys.stdout.flush()

    yield show


@contextmanager
def live_view(job: Job, console: Console | None = None) -> Iterator[Show]:
    """Draw numbers, new templates and frequent templates on a terminal."""
    from rich.console import Console
    from rich.live import Live

    console = console or Console()
    alerts: deque[Alert] = deque(maxlen=50)
    counts = deque([(monotonic(), job.parser.seen)])
    frequent: list[TemplateRow] = []
    next_list = next_draw = 0.0
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def draw() -> None:
        nonlocal frequent, next_list, next_draw
        now = monotonic()
        counts.append((now, job.parser.seen))
        while len(counts) > 2 and now - counts[1][0] > WINDOW:
            counts.popleft()
        if now >= next_list:
            frequent = job.templates()
            # This groups all lines anew: let it take a twentieth of the time at most.
            next_list = monotonic() + max(1.0, 20 * (monotonic() - now))
        (begin, first), (end, last) = counts[0], counts[-1]
        rate = (last - first) / (end - begin) if end > begin else 0.0
        live.update(terminal_view(job, rate, alerts, frequent, console.height), refresh=True)
        next_draw = monotonic() + REFRESH

    def show(found: Sequence[Alert]) -> None:
        alerts.extend(found)
        if monotonic() >= next_draw:
            draw()

    with live:
        yield show
        next_list = 0.0
        draw()


def terminal_view(
    job: Job, rate: float, alerts: Sequence[Alert], frequent: Sequence[TemplateRow], height: int
) -> RenderableType:
    """What the terminal shows, no higher than it is."""
    from rich.console import Group
    from rich.text import Text

    parser = job.parser
    budget = f" of {parser.budget:,.0f}" if parser.concentration.bounded else ""
    numbers = (
        f"{parser.seen:,} lines, {rate:,.0f}/s   {len(parser):,} templates   "
        f"{parser.n_variants:,} slots{budget}   temperature {parser.temperature:.3f}"
    )
    state = "waiting for more" if job.source.waiting else "reading"
    names = Text(f"{visible(', '.join(job.source.names))}: {state}", style="dim")
    names.no_wrap, names.overflow = True, "ellipsis"
    n_rows = max(2, height - 12)
    new = _view_table("new templates", "line", "novelty")
    n_new = min(len(alerts), n_rows // 2)
    for alert in [*alerts][::-1][:n_new]:
        new.add_row(f"{alert.number:,}", f"{alert.novelty:.2f}", template_text(alert.template))
    known = _view_table("frequent templates", "count", "share")
    for row in frequent[: n_rows - n_new]:
        known.add_row(f"{row.count:,}", f"{row.share:.1%}", template_text(row.template))
    return Group(Text(numbers, no_wrap=True, overflow="ellipsis"), names, new, known)


def _view_table(name: str, *numbers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True, min_width=8)
    table.add_column(name, ratio=1, no_wrap=True, overflow="ellipsis")
    return table
