"""What ``dedup`` does with its records: prints, explains, counts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from .io import progress, total_size, valid

if TYPE_CHECKING:
    from ..dedup.forms import Raw
    from ..dedup.job import Job
    from ..dedup.parquet import Tables
    from ..dedup.verdict import Verdict

SHOWN = 500  # characters of a text in an explanation


@dataclass
class Summary:
    """What became of the records of a run, and which files were damaged."""

    counts: dict[str, int]
    damages: dict[str, str]
    why: str = ""  # records were left out
    doubt: str = ""

    def say(self, seconds: float) -> None:
        """Tell it on standard error."""
        counts = self.counts
        rate = f" ({counts['records'] / seconds:,.0f} records/s)" if counts["records"] else ""
        told = [f"records: {counts['records']:,} in {seconds:.1f} s{rate}"]
        if counts["before"]:
            told[0] += f", {counts['before'] + counts['records']:,} with those before"
        told.append(f"kept: {counts['kept']:,}, dropped: {counts['dropped']:,}")
        if counts["bad"]:
            most = "warning: " if 2 * counts["bad"] > counts["records"] else ""
            told.append(f"{most}left out: {counts['bad']:,}, {self.why}; --explain tells which")
        for name, why in self.damages.items():
            told.append(f"{name} is damaged, read up to there: {why}")
        if self.doubt:
            told.append(f"warning: {self.doubt}")
        for line in told:
            click.echo(line, err=True)


def lines(job: Job, paths: list[str], output: Path | None, explain: bool) -> Summary:
    """Print the records of a job that are kept."""
    before = asdict(job.tally)
    with ExitStack() as stack, _bar(job, paths) as advance:
        # Of records that cannot be compared, an output without a state is left as it was.
        out = stack.enter_context(_open(output, job)) if job.keeps else None
        before_it = job.begun if output is None else job.output is not None and job.output.length
        headed = bool(before_it and job.found.columns)
        waited = False
        for batch in job:
            if job.waits is not None and not waited:
                click.echo(f"waiting for something to write to {job.waits}", err=True)
                waited = True
            if out is None and batch and not job.hopeless:
                out = stack.enter_context(_open(output, job))
            if out is not None:
                headed = _print(out, job, batch, headed)
            if explain:
                _explain(_told(job, one, verdict, len(paths) > 1) for one, verdict in batch)
            advance()
        out = out or stack.enter_context(_open(output, job))
        _print(out, job, [], headed)
        job.save()
    summary = _summary(job, before, job.damages)
    return replace(summary, doubt=job.found.doubt)


def _print(out: BinaryIO, job: Job, batch: list[tuple[Raw, Verdict]], headed: bool) -> bool:
    """Write what is kept, after the first line of CSV; whether that is written by now."""
    if job.found.columns and not headed:
        out.write(job.found.columns + b"\n")
    out.writelines(one.raw + b"\n" for one, verdict in batch if verdict.kept)
    if out is sys.stdout.buffer or not batch:
        out.flush()
    return headed or bool(job.found.columns)


def parquet(tables: Tables, paths: list[str], explain: bool) -> Summary:
    """Write the rows of Parquet files that are kept."""
    before = asdict(tables.tally)
    with _bar(tables, paths) as advance:
        for batch in tables:
            if explain:
                _explain(_row(tables, *one, len(paths) > 1) for one in enumerate(batch, 1))
            advance()
    if tables.dropped:
        click.echo(f"stopped before the end: {tables.output} was not written", err=True)
    return _summary(tables, before, {})


def _summary(job: Job | Tables, before: dict[str, int], damages: dict[str, str]) -> Summary:
    new = {name: count - before[name] for name, count in asdict(job.tally).items()}
    return Summary(new | {"before": before["records"]}, damages, job.reasons.told())


def _explain(rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object for each record that is not kept."""
    for told in filter(None, rows):
        click.echo(json.dumps({k: v for k, v in told.items() if v is not None}), err=True)


def _told(job: Job, one: Raw, verdict: Verdict, several: bool) -> dict[str, Any]:
    """Why a record of a file is not kept, and where it is; nothing if it is."""
    if verdict.kept or job.spot is None:
        return {}
    place = {"file": job.spot.file if several else None, "line": job.spot.line + one.line}
    if verdict.bad:  # it is in no output, so here is all that can be told
        place["raw"] = _short(one.raw.decode("utf-8", "replace"))
    return _why(one.content, verdict, place)


def _row(tables: Tables, number: int, judged: tuple[Any, Verdict], several: bool) -> dict[str, Any]:
    """The same of a row of Parquet, by its number in its file."""
    content, verdict = judged
    if verdict.kept:
        return {}
    path, before = tables.spot
    place = {"file": path if several else None, "row": before + number}
    return _why(content, verdict, place)


def _why(content: object, verdict: Verdict, place: dict[str, Any]) -> dict[str, Any]:
    """Records are numbered from 1."""
    told = {"record": verdict.number + 1, **place, "text": _short(content)}
    if verdict.of is None:
        return told | {"bad": True, "reason": verdict.reason}
    told |= {"of": verdict.of + 1, "similarity": round(verdict.similarity or 0.0, 6)}
    return told | {"kept": _short(verdict.record)}


def _short(content: object) -> str | None:
    return valid(content[:SHOWN]) if isinstance(content, str) else None


@contextmanager
def _open(output: Path | None, job: Job) -> Iterator[BinaryIO]:
    """The output; with a state, cut back to where that was saved."""
    if output is None:
        yield sys.stdout.buffer
        return
    try:
        if job.keeps:
            with _own(output, job) as file:
                yield file
        else:
            with output.open("wb") as file:
                yield file
    except OSError as error:
        said = error.strerror or str(error)
        raise click.ClickException(f"cannot write {output}: {said}") from error


@contextmanager
def _own(output: Path, job: Job) -> Iterator[BinaryIO]:
    """A file that the state has written, or says that it will; another one is refused."""
    from ..dedup.written import check_unwritten

    if job.output is None:
        check_unwritten(output)
    else:
        job.output.check(output)
    made = not output.exists()
    gone = False
    try:
        with output.open("wb" if made else "r+b") as file:
            try:
                _begin(file, output, job)
                yield file
            finally:
                gone = job.disclaim()
    finally:
        # Closed by now: what a full disk does not take would be in the way of cutting it.
        if gone:
            os.truncate(output, 0)
            if made:
                output.unlink(missing_ok=True)


def _begin(file: BinaryIO, output: Path, job: Job) -> None:
    """Cut an output back to where the state was saved, and let the state know of it."""
    from ..dedup.written import Written
    from ..snapshot import sync_folder

    length = job.output.length if job.output else 0
    if extra := file.seek(0, os.SEEK_END) - length:
        click.echo(f"{output}: cut {extra:,} bytes off that came after the last save", err=True)
    file.seek(length)
    file.truncate()

    def written() -> Written:
        file.flush()
        os.fsync(file.fileno())
        return Written.of(output, file.tell())

    sync_folder(output.parent)
    if (found := written()) != job.output:
        job.claim(found)
    job.written = written


@contextmanager
def _bar(job: Job | Tables, paths: list[str]) -> Iterator[Callable[[], None]]:
    """A progress bar by bytes, on standard error, if that is a terminal and the output is not."""
    with nullcontext() if sys.stdout.isatty() else progress("dedup", total_size(paths)) as update:

        def advance() -> None:
            if update is not None:
                tally = job.tally
                update(job.read, text=f"{tally.records:,} records, {tally.kept:,} kept")

        yield advance
