"""``distinctkv dedup``: records without their near-duplicates."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from .io import (
    STATE,
    Stop,
    Update,
    file_errors,
    input_paths,
    lock_path,
    lock_state,
    progress,
    speed,
    standard_output,
    total_size,
    valid,
)

if TYPE_CHECKING:
    from ..dedup.deduplicator import Decision, Deduplicator
    from ..dedup.formats import Batch, LineOutput, ParquetOutput, Record
    from ..dedup.job import Job

FORMATS = ("auto", "text", "jsonl", "csv", "parquet")
SHOWN = 500  # characters of a text in an explanation


@click.command("dedup", short_help="Drop records that are much like an earlier one.")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option(
    "--field",
    metavar="NAME",
    help="The JSON field or table column to compare. [default: text, or the only one that holds "
    "texts]",
)
@click.option(
    "--similarity",
    type=click.FloatRange(-1, 1),
    callback=lambda _context, _option, value: _number(value),
    default=0.9,
    show_default=True,
    help="A record with at least this cosine to a kept one is a duplicate.",
)
@click.option(
    "--explain", is_flag=True, help="Print on standard error why each record was dropped."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="PATH",
    help="Write the kept records to this file when the input is read (with --state also after "
    "Ctrl-C or a damaged input). [default: standard output]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    help="The format of the records. [default: from the suffix or the first bytes]",
)
@click.option(
    "--state",
    type=STATE,
    metavar="PATH",
    help="Remember the records in this file, and compare with those of earlier runs.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compare with at most this many kept records. [default: no limit]",
)
def command(
    files: tuple[str, ...],
    field: str | None,
    similarity: float,
    explain: bool,
    output: Path | None,
    form: str,
    state: Path | None,
    budget: int | None,
) -> None:
    """Drop records that are much like an earlier one, and print the others unchanged.

    The input is plain text (a record is a line), JSON lines, CSV or Parquet, and may be compressed
    with gzip, bzip2, xz or zstd. Texts are compared by their runs of four characters, lists of
    numbers as vectors. Records that cannot be compared are dropped and counted.
    """
    from ..dedup.job import Job

    paths = input_paths(files)
    output = None if output == Path("-") else output
    _check_output(output, [*paths, *([str(state)] if state else [])], state)
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        seen = _load(state, similarity, budget)
        job = Job(paths, seen, form=None if form == "auto" else form, field=field, stop=stop)
        tally = job.tally
        _check_setting(seen, job, state)
        if job.schema is not None and output is None:
            raise click.BadParameter("is needed for Parquet: name a file", param_hint="--output")
        # A state and its output together hold what was read; without a state, all or nothing.
        complete = (lambda: True) if state else (lambda: not (stop() or job.damages))
        with _open_output(output, job, complete) as out, _progress(paths) as update:
            start = perf_counter()
            for batch, decisions in job:
                _check_setting(seen, job, state)
                if field is None and job.field is not None:
                    field = job.field
                    click.echo(f"comparing the field {field!r}; --field names another", err=True)
                out.write(batch, [one.kept for one in decisions])
                if explain:
                    for record, decision in zip(batch.records, decisions, strict=True):
                        _explain(batch, record, decision, several=len(paths) > 1)
                update(job.bytes_read, text=f"{tally.records:,} records, {tally.kept:,} kept")
        if state is not None:
            _save(seen, state)
        _summarize(job, perf_counter() - start)
    sys.exit(stop.status or int(bool(job.damages)))


def _number(value: float) -> float:
    if isnan(value):
        raise click.BadParameter("nan is not a number; a cosine in [-1, 1] is needed")
    return value


def _check_output(output: Path | None, paths: list[str], state: Path | None) -> None:
    """Refuse to write over an input, over the state, or over the output of an earlier run."""
    if output is None:
        return
    if not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    for path in paths:
        if output.exists() and os.path.exists(path) and output.samefile(path):
            raise click.BadParameter(f"{output} is being read; name another", param_hint="--output")
    if state is None:
        return
    if os.path.realpath(output) in (os.path.realpath(state), str(lock_path(state))):
        raise click.BadParameter(
            f"{output} is the state or its lock; name another", param_hint="--output"
        )
    if state.exists() and output.is_file() and output.stat().st_size > 0:
        raise click.BadParameter(
            f"{output} exists, and with --state each run writes only records that are new; name a "
            "new file",
            param_hint="--output",
        )


def _load(state: Path | None, similarity: float, budget: int | None) -> Deduplicator:
    """The de-duplicator, from the state if there is one."""
    from math import inf

    from ..dedup.deduplicator import Deduplicator

    try:
        wanted = Deduplicator(similarity, budget=budget or inf, on_bad="skip")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error
    if state is None or not state.exists():
        return wanted
    loaded = Deduplicator.load(state)
    if (ours := (loaded.similarity, loaded.budget)) != (wanted.similarity, wanted.budget):
        raise click.ClickException(
            f"{state} was made with --similarity {ours[0]:g} and a budget of {ours[1]:g}; "
            "use these, or name another state"
        )
    if (loaded.setting, loaded.on_bad) != (wanted.setting, wanted.on_bad):
        raise click.ClickException(
            f"{state} was made by a Deduplicator with {loaded.setting} and on_bad="
            f"{loaded.on_bad!r}, this command has {wanted.setting} and {wanted.on_bad!r}; "
            "name another state"
        )
    return loaded


def _check_setting(seen: Deduplicator, job: Job, state: Path | None) -> None:
    """Save format and field with the state once known; refuse a state made with others."""
    from ..dedup.job import NOTE

    if job.setting is None:
        return
    saved = seen.note.setdefault(NOTE, job.setting)
    if saved != job.setting:
        raise click.ClickException(
            f"{state} was made with {saved}, this run has {job.setting}; use the options of the "
            "state, or name another state"
        )


def _save(seen: Deduplicator, state: Path) -> None:
    try:
        seen.save(state)
    except OSError as error:
        raise click.ClickException(f"cannot write {state}: {error.strerror}") from error


@contextmanager
def _open_output(
    output: Path | None, job: Job, is_complete: Callable[[], bool]
) -> Iterator[LineOutput | ParquetOutput]:
    """Where kept records are written; a file is replaced at the end if the output is complete."""
    from ..dedup.formats import LineOutput, ParquetOutput

    if output is None:
        out = LineOutput(sys.stdout.buffer)
        yield out
        out.close()
        return
    try:
        with _open_file(output, is_complete) as file:
            writer = LineOutput(file) if job.schema is None else ParquetOutput(file, job.schema)
            yield writer
            writer.close()
    except OSError as error:
        reason = error.strerror or error
        raise click.ClickException(f"cannot write {output}: {reason}") from error


class _IncompleteError(Exception):
    """Not all records were read: the old output is kept."""


@contextmanager
def _open_file(path: Path, is_complete: Callable[[], bool]) -> Iterator[BinaryIO]:
    """A file that replaces `path` if it is complete; a pipe or device is written directly."""
    from .. import snapshot

    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    with suppress(_IncompleteError), snapshot.replacing(path) as file:
        yield file
        if not is_complete():
            kept = "; the file that was there is kept" if path.exists() else ""
            click.echo(f"{path} was not written: not all records were read{kept}", err=True)
            raise _IncompleteError


def _explain(batch: Batch, record: Record, decision: Decision, *, several: bool) -> None:
    """Print why a record is not kept, as JSON; records are numbered from 1."""
    if decision.kept:
        return
    found: dict[str, Any] = {"record": decision.number + 1, "file": batch.file if several else None}
    found["line" if batch.table is None else "row"] = record.line
    if decision.of is None:  # it is in no output
        raw = None if batch.table is not None else _short(record.raw.decode("utf-8", "replace"))
        found |= {"raw": raw, "text": _short(record.content), "bad": True}
        found["reason"] = decision.reason
    else:
        found |= {"text": _short(record.content), "of": decision.of + 1}
        found["similarity"] = round(decision.similarity or 0.0, 6)
        found["kept"] = _short(decision.record)
    click.echo(json.dumps({k: v for k, v in found.items() if v is not None}), err=True)


def _short(content: object) -> str | None:
    return valid(content[:SHOWN]) if isinstance(content, str) else None


def _summarize(job: Job, seconds: float) -> None:
    """Print on standard error what became of the records."""
    tally = job.tally
    click.echo(speed(tally.records, "records", seconds), err=True)
    click.echo(f"kept: {tally.kept:,}, duplicates: {tally.duplicates:,}", err=True)
    if tally.rejected:
        most = "warning: " if 2 * tally.rejected > tally.records else ""
        said = f"{most}rejected: {tally.rejected:,}, {job.reason}; --explain lists them"
        click.echo(said, err=True)
    for name, why in job.damages.items():
        click.echo(f"{name} is damaged, read up to there: {why}", err=True)


def _progress(paths: list[str]) -> AbstractContextManager[Update]:
    """A progress bar by bytes, unless records are printed on the same terminal."""
    if sys.stdout.isatty():
        return nullcontext(lambda done, total=None, text="": None)
    return progress("dedup", total_size(paths))
