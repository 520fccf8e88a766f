"""What ``dedup`` does with its records: prints, explains, counts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from . import inputs

if TYPE_CHECKING:
    from ..streams.dedup.deduplicator import Deduplicator
    from ..streams.dedup.forms import Raw
    from ..streams.dedup.job import Job
    from ..streams.dedup.verdict import Verdict

SHOWN = 500  # characters of a text in an explanation


@dataclass
class Summary:
    """What became of the records of a run, and which files were damaged."""

    counts: dict[str, int]
    damages: dict[str, str]

    def say(self, seconds: float) -> None:
        """Tell it on standard error."""
        counts = self.counts
        rate = f" ({counts['records'] / seconds:,.0f} records/s)" if counts["records"] else ""
        told = [f"records: {counts['records']:,} in {seconds:.1f} s{rate}"]
        if counts["before"]:
            told[0] += f", {counts['before'] + counts['records']:,} with those before"
        told.append(f"kept: {counts['kept']:,}, dropped: {counts['dropped']:,}")
        if counts["bad"]:
            told.append(f"left out, having nothing to compare: {counts['bad']:,}")
        for name, why in self.damages.items():
            told.append(f"{name} is damaged, read up to there: {why}")
        for line in told:
            click.echo(line, err=True)


def lines(job: Job, paths: list[str], output: Path | None, explain: bool) -> Summary:
    """Print the records of a job that are kept."""
    before = asdict(job.tally)
    with ExitStack() as stack, _bar(job, paths) as advance:
        out = stack.enter_context(_open(output, job)) if job.begun else None
        headed = job.begun and bool(job.found.columns)
        for batch in job:
            # Of records that cannot be compared, the output is left as it was.
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
    new = {name: count - before[name] for name, count in asdict(job.tally).items()}
    return Summary(new | {"before": before["records"]}, job.damages)


def _print(out: BinaryIO, job: Job, batch: list[tuple[Raw, Verdict]], headed: bool) -> bool:
    """Write what is kept, after the first line of CSV; whether that is written by now."""
    if job.found.columns and not headed:
        out.write(job.found.columns + b"\n")
    out.writelines(one.raw + b"\n" for one, verdict in batch if verdict.kept)
    if out is sys.stdout.buffer or not batch:
        out.flush()
    return headed or bool(job.found.columns)


def parquet(
    paths: list[str], field: str, seen: Deduplicator, output: Path, explain: bool
) -> Summary:
    """Write the rows of Parquet files that are kept."""
    from ..streams.dedup.parquet import deduplicate_parquet

    counts = dict.fromkeys(("records", "kept", "dropped", "bad", "before"), 0)
    for batch in deduplicate_parquet(paths, field, seen, output):
        counts["records"] += len(batch)
        counts["kept"] += sum(verdict.kept for _, verdict in batch)
        counts["bad"] += sum(verdict.bad for _, verdict in batch)
        if explain:
            _explain(_plain(seen, content, verdict) for content, verdict in batch)
    counts["dropped"] = counts["records"] - counts["kept"] - counts["bad"]
    return Summary(counts, {})


def _explain(rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object for each record that is not kept."""
    for told in filter(None, rows):
        click.echo(json.dumps({k: v for k, v in told.items() if v is not None}), err=True)


def _told(job: Job, one: Raw, verdict: Verdict, several: bool) -> dict[str, Any]:
    """Why a record of a file is not kept, and where it is; nothing if it is."""
    from ..streams.dedup.job import fault

    if verdict.kept or job.spot is None:
        return {}
    place = {"file": job.spot.file if several else None, "line": job.spot.line + one.line}
    return _why(one.content, verdict, place, lambda: fault(job.seen, one))


def _plain(seen: Deduplicator, content: object, verdict: Verdict) -> dict[str, Any]:
    """The same of a row, which has no place."""
    fault, width = seen._reader.fault, seen._shelf.width
    return {} if verdict.kept else _why(content, verdict, {}, lambda: fault(content, width))


def _why(
    content: object, verdict: Verdict, place: dict[str, Any], fault: Callable[[], str]
) -> dict[str, Any]:
    """Records are numbered from 1."""
    told = {"record": verdict.number + 1, **place, "text": _short(content)}
    if verdict.of is None:
        return told | {"bad": True, "reason": fault()}
    told |= {"of": verdict.of + 1, "similarity": round(verdict.similarity or 0.0, 6)}
    return told | {"kept": _short(verdict.record)}


def _short(content: object) -> str | None:
    return content[:SHOWN] if isinstance(content, str) else None


@contextmanager
def _open(output: Path | None, job: Job) -> Iterator[BinaryIO]:
    """The output, cut back to where the state was saved."""
    if output is None:
        yield sys.stdout.buffer
        return
    if job.begun and (not output.exists() or output.stat().st_size < job.output):
        raise click.ClickException(
            f"{output} is not what the state says was written ({job.output:,} bytes); "
            "name the same output, or another state"
        )
    try:
        with output.open("r+b" if job.begun else "wb") as file:
            if job.begun:
                file.seek(job.output)
                file.truncate()

            def written() -> int:
                file.flush()
                os.fsync(file.fileno())
                return file.tell()

            job.written = written
            yield file
    except OSError as error:
        said = error.strerror or str(error)
        raise click.ClickException(f"cannot write {output}: {said}") from error


@contextmanager
def _bar(job: Job, paths: list[str]) -> Iterator[Callable[[], None]]:
    """A progress bar by bytes, on standard error, if that is a terminal and the output is not."""
    if sys.stderr is None or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    said = TextColumn("{task.fields[records]:,} records, {task.fields[kept]:,} kept")
    columns = (TextColumn("dedup"), BarColumn(), DownloadColumn(), said, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=inputs.size(paths), records=0, kept=0)
        yield lambda: progress.update(
            task, completed=job.read, records=job.tally.records, kept=job.tally.kept
        )
