"""Options that ``parse`` and ``watch`` share, and the job that they describe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .io import STATE, Stop

if TYPE_CHECKING:
    from ..logs.headers import Header
    from ..logs.job import Job
    from ..logs.parser import LogParser
    from ..policy import Concentration

Command = Callable[..., None]
CELL = 1 << 20  # bytes of text that are read, and then parsed, at a time
OPTIONS: tuple[Any, ...] = (
    click.option(
        "--header",
        metavar="REGEX|auto|none",
        default="auto",
        help="What stands before the message: found from the first lines (auto, the default), a "
        "regular expression, or none. A group named message is the message, one named time says "
        "when.",
    ),
    click.option(
        "--state",
        type=STATE,
        metavar="PATH",
        help="Go on from this file, and keep it up to date: after a kill nothing is lost and "
        "nothing counts twice.",
    ),
    click.option(
        "--budget",
        type=click.IntRange(min=1),
        metavar="SLOTS",
        help="Keep at most so many templates and words seen in them. [default: no limit]",
    ),
    click.option(
        "--gain",
        type=click.FloatRange(min=0),
        metavar="SLOTS",
        help="With --budget: grant up to so many more while the log is new.",
    ),
    click.option(
        "--metrics",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve numbers for Prometheus on this port of 127.0.0.1; 0 takes any that is free.",
    ),
)


def shared(command: Command) -> Command:
    """Give a command the options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@contextmanager
def served(job: Job, port: int | None) -> Iterator[Callable[[], None]]:
    """What to call when there are new numbers to serve; nothing if no port is given."""
    if port is None:
        yield lambda: None
        return
    from ..logs.history import Sample
    from ..logs.metrics import Metrics, render

    def publish() -> None:
        parser = job.parser
        metrics.publish(render(Sample.of(parser), job.tally, parser.forgotten))

    try:
        metrics = Metrics(port)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--metrics") from error
    publish()
    click.echo(f"metrics: http://127.0.0.1:{metrics.port}/metrics", err=True)
    try:
        yield publish
    finally:
        metrics.close()


def begin(
    paths: Sequence[str],
    header: str,
    state: Path | None,
    budget: int | None,
    gain: float | None,
    *,
    follow: bool,
    stop: Stop,
    cell: int,
) -> Job:
    """The job, from the state where there is one."""
    from ..logs.job import Job

    for path in paths:
        if state is not None and state.exists() and path != "-" and state.samefile(path):
            raise click.BadParameter(
                f"{state} is one of the files to read; name another", param_hint="--state"
            )
    parser = _parser(state, budget, gain)
    job = Job(paths, parser, state=state, follow=follow, cell=cell, stop=stop)
    begun = job.tally.lines > 0
    if header == "auto":
        job.guessing = not begun and job.header is None
        return job
    wanted = header_of(header)
    if begun:
        check_header(state, job.header, wanted)
    job.header = job.header if begun else wanted
    return job


def check_header(state: Path | None, held: Header | None, wanted: Header | None) -> None:
    """Refuse another header than that of the state."""
    if (wanted and wanted.pattern) != (held and held.pattern):
        told = f"the header {', '.join(held.fields) or repr(held.pattern)}" if held else "no header"
        raise click.BadParameter(
            f"{state} was begun with {told}; leave the option out to go on with it",
            param_hint="--header",
        )


def header_of(given: str) -> Header | None:
    """The header that was asked for by a regular expression; None for none."""
    from ..logs.headers import Header

    try:
        return None if given == "none" else Header(given)
    except re.error as error:
        raise click.BadParameter(
            f"{given!r} is no regular expression: {error}", param_hint="--header"
        ) from error


def _parser(state: Path | None, budget: int | None, gain: float | None) -> LogParser:
    from ..logs.parser import LogParser
    from ..policy import Concentration

    if gain is not None and budget is None:
        raise click.BadParameter("needs --budget, the slots granted always", param_hint="--gain")
    held = _load(state) if state is not None and state.exists() else None
    if budget is None:
        return LogParser() if held is None else held
    try:
        wanted = Concentration(tau=LogParser().concentration.tau, base=budget, gain=gain or 0.0)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint="--budget, --gain") from error
    if held is not None and _budget(held.concentration) != _budget(wanted):
        raise click.BadParameter(
            f"{state} was begun with {_budget(held.concentration)}; "
            "leave the option out to go on with it",
            param_hint="--budget",
        )
    return LogParser(wanted) if held is None else held


def _load(state: Path) -> LogParser:
    from ..logs.parser import LogParser
    from ..snapshot import SnapshotError
    from .kinds import PARSER, kind_of

    try:
        return LogParser.load(state)
    except SnapshotError as error:
        with suppress(SnapshotError):
            if (kind := kind_of(state)[0]) != PARSER:
                raise click.BadParameter(
                    f"{state} holds a {kind}, not a {PARSER}; name another path",
                    param_hint="--state",
                ) from error
        raise click.ClickException(
            f"the state cannot be used: {error}; if it is a state of yours, delete it to start anew"
        ) from error


def _budget(held: Concentration) -> str:
    """What a policy grants, in words."""
    if not held.bounded:
        return "no budget"
    gain = f" and a gain of {held.gain:,.10g}" if held.gain else ""
    return f"a budget of {held.base:,.10g} slots{gain}"
