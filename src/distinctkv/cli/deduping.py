"""What ``dedup`` does with its records: prints, explains, counts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from . import inputs

if TYPE_CHECKING:
    from ..streams.dedup.deduplicator import Deduplicator
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
    with _open(output, job) as out, _bar(job, paths) as advance:
        headed = job.begun and bool(job.header)
        for batch in job:
            if job.header and not headed:
                out.write(job.header + b"\n")
                headed = True
            out.writelines(one.raw + b"\n" for one, verdict in batch if verdict.kept)
            if explain:
                _explain((one.content, verdict) for one, verdict in batch)
            if output is None:
                out.flush()
            advance()
        out.flush()
        job.save()
    new = {name: count - before[name] for name, count in asdict(job.tally).items()}
    return Summary(new | {"before": before["records"]}, job.damages)


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
            _explain(batch)
    counts["dropped"] = counts["records"] - counts["kept"] - counts["bad"]
    return Summary(counts, {})


def _explain(pairs: Iterable[tuple[Any, Verdict]]) -> None:
    """One JSON object for each record that is not kept; records are numbered from 1."""
    for content, verdict in pairs:
        if verdict.kept:
            continue
        told: dict[str, Any] = {"record": verdict.number + 1, "text": _short(content)}
        if verdict.of is None:
            told["bad"] = True
        else:
            told |= {"of": verdict.of + 1, "similarity": round(verdict.similarity or 0.0, 6)}
            told["kept"] = _short(verdict.record)
        click.echo(json.dumps({k: v for k, v in told.items() if v is not None}), err=True)


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
            file.seek(job.output)
            file.truncate()

            def written() -> int:
                file.flush()
                os.fsync(file.fileno())
                return file.tell()

            job.written = written
            yield file
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error


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
