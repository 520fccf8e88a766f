"""``distinctkv parse``: the templates of logs, as a table or for another program."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, astuple, fields
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from .io import (
    STATE,
    Stop,
    file_errors,
    input_paths,
    lock_state,
    progress,
    read_twice,
    speed,
    standard_output,
    total_size,
    valid,
    visible,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..logs.alerts import AlertRule
    from ..logs.headers import Header
    from ..logs.job import Job, TemplateRow
    from ..logs.parser import LogParser
    from ..policy import Concentration

CHUNK = 1 << 20  # bytes of text that are read, and then parsed, at a time
ROWS = 40  # of a table, unless --top says more
WIDE = 90  # columns from which times have a column of their own
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a formula in a spreadsheet begins
HEADER_OPTIONS: tuple[Any, ...] = (
    click.option(
        "--header",
        metavar="REGEX|auto|none",
        default="auto",
        help="What stands before the message: auto detects it from the first lines (default), none "
        "means nothing, a regular expression describes it. Its group message is the message, "
        "its group time is the time.",
    ),
    click.option(
        "--field",
        metavar="NAME",
        help="The field of JSON lines or logfmt that is the message. [default: found by its name]",
    ),
)
OPTIONS: tuple[Any, ...] = (
    *HEADER_OPTIONS,
    click.option(
        "--state",
        type=STATE,
        metavar="PATH",
        help="Save the progress in this file, and resume from it. After a kill no line is lost "
        "and none counts twice.",
    ),
    click.option(
        "--budget",
        type=click.IntRange(min=1),
        metavar="SLOTS",
        help="Hold at most this many slots: templates and their variants. [default: no limit]",
    ),
    click.option(
        "--gain",
        type=click.FloatRange(min=0),
        metavar="SLOTS",
        help="With --budget: hold up to this many more while many lines are new.",
    ),
    click.option(
        "--metrics",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve Prometheus metrics on this port of 127.0.0.1; 0 takes any free port.",
    ),
)


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that ``parse`` and ``watch`` share."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def header_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where the message of a line is."""
    for option in reversed(HEADER_OPTIONS):
        command = option(command)
    return command


@click.command("parse")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, one for each template."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option(
    "--otel",
    is_flag=True,
    help="Print one OTLP log record per message, with log.record.template and its parameters.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print only the N most frequent templates.",
)
@click.option("--follow", is_flag=True, help="Wait for more lines, also after log rotation.")
@shared_options
def command(
    files: tuple[str, ...],
    as_json: bool,
    as_csv: bool,
    otel: bool,
    top: int | None,
    follow: bool,
    header: str,
    field: str | None,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    metrics: int | None,
) -> None:
    """Find the templates of logs.

    A template is what lines of one kind have in common. The input is plain text, JSON lines,
    logfmt or OTLP JSON lines, also compressed with gzip, bzip2, xz or zstd. The output is a table
    on a terminal and JSON lines in a pipe. Lines of a stack trace belong to the line before. Lines
    that are not UTF-8 or very long are parsed, too, and counted. Ctrl-C prints the result so far
    and saves the state.

    \b
    distinctkv parse app.log --top 20
    kubectl logs my-pod | distinctkv parse --csv > templates.csv
    distinctkv parse app.jsonl --field event --otel > records.jsonl
    """
    if as_json + as_csv + otel > 1:
        raise click.UsageError("--json, --csv and --otel exclude each other; choose one")
    if otel and (state or follow or top or budget or metrics is not None):
        raise click.UsageError(
            "--otel reads all lines twice; leave out --state, --follow, --top, --budget, --metrics"
        )
    if follow and len(files) > 1:
        raise click.UsageError(f"only one file can be followed, got {len(files)}")
    paths = input_paths(files)
    if otel:
        sys.exit(_write_otlp(paths, header, field))
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        job = open_job(
            *(paths, header, field, state, budget, gain), follow=follow, stop=stop, chunk=CHUNK
        )
        before = job.parser.seen
        with serve_metrics(job, metrics) as publish, progress("parse", total_size(paths)) as update:
            start = perf_counter()
            for batch in job:
                job.parse(batch)
                publish()
                text = f"{job.parser.seen:,} lines, {len(job.parser):,} templates"
                update(job.source.bytes_read, text=text)
        job.save()
        rows = job.templates()
        print_summary(job, len(rows), job.parser.seen - before, perf_counter() - start)
        if not as_json and not as_csv and sys.stdout.isatty():
            _print_table(rows, top)
        else:
            (_write_csv if as_csv else _write_json)(rows[:top])
    sys.exit(stop.status or int(bool(job.source.damages)))


def open_job(
    paths: Sequence[str],
    header: str,
    field: str | None,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    *,
    follow: bool,
    stop: Stop,
    chunk: int,
    alert_rule: AlertRule | None = None,
) -> Job:
    """The job that the options describe, resumed from the state if there is one."""
    from ..logs.job import ALERT_RULE, Job

    for path in paths:
        if state is not None and state.exists() and path != "-" and state.samefile(path):
            raise click.BadParameter(
                f"{state} is one of the files to read; name another", param_hint="--state"
            )
    return Job(
        paths,
        _open_parser(state, budget, gain),
        state=state,
        header=open_header(header, field),
        detect_header=header == "auto",
        field=field,
        follow=follow,
        chunk_size=chunk,
        stop=stop,
        alert_rule=alert_rule or ALERT_RULE,
    )


def open_header(pattern: str, field: str | None) -> Header | None:
    """The header that the options describe; None if it is to be detected, or there is none."""
    from ..logs.headers import Header

    if field is not None and pattern != "auto":
        raise click.UsageError("--field and --header exclude each other; choose one")
    if pattern in ("auto", "none"):
        return None
    try:
        return Header(pattern)
    except re.error as error:
        raise click.BadParameter(
            f"{pattern!r} is no regular expression: {error}", param_hint="--header"
        ) from error


def _open_parser(state: Path | None, budget: int | None, gain: float | None) -> LogParser:
    """A new parser, or that of the state, which must have the same budget."""
    from ..logs.parser import LogParser
    from ..policy import Concentration

    if gain is not None and budget is None:
        raise click.BadParameter("needs --budget, the slots granted always", param_hint="--gain")
    saved = _load(state) if state is not None and state.exists() else None
    if budget is None:
        return LogParser() if saved is None else saved
    try:
        wanted = Concentration(tau=LogParser().concentration.tau, base=budget, gain=gain or 0.0)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="--budget, --gain") from error
    if saved is not None and _budget_text(saved.concentration) != _budget_text(wanted):
        raise click.BadParameter(
            f"{state} was begun with {_budget_text(saved.concentration)}; "
            "leave out --budget to resume",
            param_hint="--budget",
        )
    return LogParser(wanted) if saved is None else saved


def _load(state: Path) -> LogParser:
    from ..logs.parser import LogParser
    from ..snapshot import SnapshotError
    from .snapshots import PARSER, read_kind

    try:
        return LogParser.load(state)
    except SnapshotError as error:
        with suppress(SnapshotError):
            if (kind := read_kind(state)[0]) != PARSER:
                raise click.BadParameter(
                    f"{state} holds a {kind}, not a {PARSER}; name another path",
                    param_hint="--state",
                ) from error
        raise click.ClickException(
            f"the state cannot be used: {error}; delete it to start anew"
        ) from error


def _budget_text(policy: Concentration) -> str:
    if not policy.bounded:
        return "no budget"
    gain = f" and a gain of {policy.gain:,.10g}" if policy.gain else ""
    return f"a budget of {policy.base:,.10g} slots{gain}"


@contextmanager
def serve_metrics(job: Job, port: int | None) -> Iterator[Callable[[], None]]:
    """Serve Prometheus metrics; call what is yielded when there are new numbers."""
    if port is None:
        yield lambda: None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        from ..extras import install

        raise click.ClickException(
            f"--metrics needs prometheus-client; {install('metrics')}"
        ) from error
    metrics, registry = _Metrics(job), CollectorRegistry()
    registry.register(metrics)
    try:
        server, _ = start_http_server(port, "127.0.0.1", registry)
    except OSError as error:
        raise click.BadParameter(
            f"cannot serve on port {port}: {error.strerror}; choose another port, or 0 for any",
            param_hint="--metrics",
        ) from error
    click.echo(f"metrics: http://127.0.0.1:{server.server_port}/metrics", err=True)
    try:
        yield metrics.publish
    finally:
        server.shutdown()
        server.server_close()


class _Metrics:
    """The numbers of a job when `publish` was called last; the server reads them in a thread."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._metrics: list[Any] = []
        self.publish()

    def collect(self) -> list[Any]:
        """What the registry asks for."""
        return self._metrics

    def publish(self) -> None:
        """Take the numbers as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        parser, counts = self._job.parser, self._job.counts
        counters = {
            "lines": ("Lines parsed.", parser.seen),
            "templates_opened": ("Templates opened or split off.", parser.n_opened),
            "forgotten_lines": ("Lines in templates that were evicted.", parser.forgotten),
            "undecodable_lines": ("Lines that are not UTF-8.", counts.undecodable),
            "truncated_lines": ("Lines that were cut for their length.", counts.truncated),
        }
        gauges = {
            "templates": ("Templates held.", len(parser)),
            "slots": ("Slots held: templates and word sequences.", parser.n_variants),
            "budget_slots": ("Slots granted.", parser.budget),
            "temperature": ("How often slots opened lately, 0 to 1.", parser.temperature),
        }
        self._metrics = [
            kind(f"distinctkv_{name}", text, value=value)
            for kind, group in ((CounterMetricFamily, counters), (GaugeMetricFamily, gauges))
            for name, (text, value) in group.items()
        ]


def print_summary(job: Job, n_templates: int, n_lines: int, seconds: float) -> None:
    """Print lines, templates, header, damages and warnings on standard error."""
    parser, counts = job.parser, job.counts
    text = [speed(n_lines, "lines", seconds)]
    if parser.seen > n_lines:
        text[0] += f", {parser.seen:,} with those before"
    text.append(f"templates: {n_templates:,}")
    if job.header is not None:
        text.append(f"header: {', '.join(job.header.fields) or job.header.pattern}")
    elif job.timed is not None:
        share = f"; {job.timed:.0%} of the first lines begin with a time" if job.timed else ""
        text.append(f"header: none found{share}")
    if job.without_header:
        text.append(f"lines without the header: {job.without_header:,}")
    if job.continued:
        text.append(f"lines that continue the line before: {job.continued:,}")
    if counts.truncated:
        text.append(f"lines truncated for their length: {counts.truncated:,}")
    if counts.undecodable:
        text.append(f"lines that are not UTF-8: {counts.undecodable:,}")
    if parser.forgotten:
        text.append(f"lines in templates that the budget evicted: {parser.forgotten:,}")
    if job.source.rotations:
        text.append(f"log rotations: {job.source.rotations:,}")
    text += [
        f"{name} is damaged, read up to there: {why}" for name, why in job.source.damages.items()
    ]
    if job.header is not None and not job.header.fields and 2 * job.without_header > counts.lines:
        text.append("warning: most lines do not begin with the header given; check --header")
    if 2 * counts.undecodable > counts.lines:
        text.append(
            "warning: this looks like binary data, or text that is not UTF-8; if it is text, "
            "convert it, for instance with iconv -f LATIN1 -t UTF-8"
        )
    for line in text:
        click.echo(line, err=True)


def _write_json(rows: Sequence[TemplateRow]) -> None:
    """One object per line; without times if no line has one."""
    timed = any(row.first_time for row in rows)
    for row in rows:
        cells = asdict(row)
        for name in ("first_time", "last_time"):
            cells[name] = cells[name] or None
            if not timed:
                del cells[name]
        sys.stdout.write(json.dumps(cells, ensure_ascii=False) + "\n")


def _write_otlp(paths: Sequence[str], header: str, field: str | None) -> int:
    """One OTLP record for each message; the exit status."""
    from ..logs.digest import ParsedLog
    from ..logs.otlp import write_otlp

    with Stop() as stop, standard_output(), file_errors(), ExitStack() as stack:
        sources = [stack.enter_context(read_twice(path)) for path in paths]
        log = ParsedLog(
            sources,
            header=open_header(header, field),
            detect_header=header == "auto",
            field=field,
            stop=stop,
        )
        for one in log.occurrences():
            template, values = one.match.template, one.match.parameters
            more = log.texts(one.lines[1:])
            record = write_otlp(one.message, one.time, one.level, template, values, more)
            sys.stdout.write(f"{valid(record)}\n")
        print_damages(log.job.source.damages)
    return stop.status or int(bool(log.job.source.damages))


def print_damages(damages: Mapping[str, str]) -> None:
    """Say on standard error which files were read in part."""
    for name, why in damages.items():
        click.echo(f"{name} is damaged, read up to there: {why}", err=True)


def _write_csv(rows: Sequence[TemplateRow]) -> None:
    """A table for other programs, with one example per template; text is never a formula."""
    from ..logs.job import TemplateRow

    writer = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([*(field.name for field in fields(TemplateRow)[:-1]), "example"])
    for row in rows:
        writer.writerow(map(_quoted, [*astuple(row)[:-1], *row.examples[:1]]))


def _quoted(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _print_table(rows: Sequence[TemplateRow], top: int | None) -> None:
    """The table, and how many templates are not in it."""
    from rich.console import Console

    if not rows:
        return
    shown = rows[: top or ROWS]
    console = Console(highlight=False)
    console.print(_table(shown, console.width))
    if len(shown) < len(rows):
        click.echo(f"{len(rows) - len(shown):,} more templates; --top {len(rows)} shows them all")


def _table(rows: Sequence[TemplateRow], width: int) -> Table:
    """A table for a terminal of some width: count, times, template and an example."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("count", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("first and last seen", no_wrap=True, style="dim")
    table.add_column("template and example", ratio=1)
    for row in rows:
        cell = [template_text(row.template)]
        if row.examples[0].split() != row.template.split():
            example = visible(row.examples[0])
            cell.append(Text(example, style="dim", no_wrap=True, overflow="ellipsis"))
        first, last = visible(row.first_time), visible(row.last_time)
        if not first:
            first, last = f"line {row.first_line:,}", f"line {row.last_line:,}"
        seen = [Text(f"{first}\n{last}")]
        if width < WIDE:
            cell.append(Text(f"{seen.pop()}", style="dim"))
        table.add_row(f"{row.count:,}", f"{row.share:.1%}", *seen, Group(*cell))
    return table


def template_text(template: str) -> Text:
    """A template for a terminal, its wildcards coloured."""
    from rich.text import Text

    text = Text(visible(template) or "(empty)", overflow="fold")
    text.highlight_regex(r"<\*>", "cyan")
    return text
