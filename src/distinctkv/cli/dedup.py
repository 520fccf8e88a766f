"""``distinctkv dedup``: records without their near-repeats."""

from __future__ import annotations

import os
import sys
from math import isnan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, cast

import click

from . import inputs
from .io import (
    STATE,
    Stop,
    file_errors,
    input_paths,
    lock_path,
    lock_state,
    standard_output,
)

if TYPE_CHECKING:
    from ..dedup.deduplicator import Deduplicator
    from ..dedup.job import Job

FORMS = ("auto", "text", "jsonl", "csv", "parquet")


@click.command("dedup", short_help="Drop records that are much like an earlier one.")
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option(
    "--field", metavar="NAME", help="The field of JSON, or column of a table, to compare."
)
@click.option(
    "--header",
    metavar="REGEX|auto|none",
    help="For lines of logs: compare what follows the header, and print whole lines. A header is "
    "found from the first lines (auto), or a regular expression. [default: none]",
)
@click.option(
    "--similarity",
    type=click.FloatRange(-1, 1),
    callback=lambda _context, _option, value: _number(value),
    default=0.9,
    show_default=True,
    help="From which cosine on a record is a repeat.",
)
@click.option(
    "--explain", is_flag=True, help="Say why, for each dropped record, on standard error."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(writable=True, path_type=Path),
    metavar="PATH",
    help="Where to put what is kept: a file, - for standard output; of Parquet with --state, a "
    "folder for its parts. With --state a file that the state did not write is refused.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="auto",
    help="What a record is; found from the first bytes if not given.",
)
@click.option(
    "--state",
    type=STATE,
    metavar="PATH",
    help="Go on from this file, and keep it up to date: later files are compared with earlier.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Hold at most so many records to compare with. [default: no limit]",
)
def command(
    files: tuple[str, ...],
    field: str | None,
    header: str | None,
    similarity: float,
    explain: bool,
    output: Path | None,
    form: str,
    state: Path | None,
    budget: int | None,
) -> None:
    """Drop records that are much like an earlier one, and print the others unchanged.

    Reads plain text (a record is a line), JSON lines, CSV and Parquet; packed with gzip, bzip2, xz
    or zst if they are. Texts are compared by their runs of characters; a field that holds a list
    of numbers is compared as the vector it is. What cannot be compared is counted and left out.
    """
    from ..dedup.job import Job
    from ..dedup.parquet import Tables
    from . import deduping

    start = perf_counter()
    paths = input_paths(files)
    output = None if output == Path("-") else output
    _check_output(output, [*paths, *([str(state)] if state else [])], state)
    with Stop() as stop, standard_output(), file_errors(), lock_state(state):
        form = _form(paths, field, state) if form == "auto" else form
        _check_form(form, field, state, output, paths)
        if form != "text" and header not in (None, "none"):
            raise click.BadParameter(f"is for plain text, not {form}", param_hint="--header")
        seen = _seen(state, similarity, budget)
        if form == "parquet":
            place = cast(Path, output)
            tables = Tables(paths, field or "", seen, place, state=state, stop=stop)
            summary = deduping.parquet(tables, paths, explain)
        else:
            job = Job(paths, seen, form=form, field=field, state=state, stop=stop)
            if form == "text":
                _set_header(job, header, paths[0], state)
            summary = deduping.lines(job, paths, output, explain)
        summary.say(perf_counter() - start)
    sys.exit(stop.status or int(bool(summary.damages)))


def _form(paths: list[str], field: str | None, state: Path | None) -> str:
    """What the records of files are, from their first bytes or from the state."""
    from ..dedup.guessing import one_form
    from ..dedup.saving import note
    from ..dedup.states import NOTE

    begun = note(state).get(NOTE) if state is not None and state.exists() else None
    held = begun.get("form") if isinstance(begun, dict) else None
    if held == "text":  # which may begin with anything
        return "text"
    form = one_form(paths, field)
    if held is None or form == held:
        return form
    if form == "auto":
        return str(held)
    raise click.ClickException(
        f"{state} was begun with {held}, {paths[0]} is {form}; name another state, "
        "or say what the file is with --format"
    )


def _number(value: float) -> float:
    if isnan(value):
        raise click.BadParameter("nan is no number; a cosine in [-1, 1] is needed")
    return value


def _set_header(job: Job, given: str | None, path: str, state: Path | None) -> None:
    """What of a line is compared: what follows the header, if one is asked for."""
    from ..dedup.guessing import hinted

    found = job.found
    if given is not None and given != "auto":
        wanted = inputs.header_of(given)
        if job.begun:
            inputs.check_header(state, found.stamp, wanted)
        found.stamp = wanted
    elif given == "auto" and not job.begun:
        found.guessing = True
    elif given is None and not job.begun and (header := hinted(path)):
        click.echo(
            f"the lines begin with {', '.join(header.fields)}; --header auto compares what "
            "follows, --header none whole lines, as now",
            err=True,
        )


def _check_form(
    form: str, field: str | None, state: Path | None, output: Path | None, paths: list[str]
) -> None:
    if form == "text" and field is not None:
        raise click.BadParameter("plain text has no fields", param_hint="--field")
    if form != "text" and field is None:
        raise click.BadParameter(_asked(form, paths[0]), param_hint="--field")
    if form == "parquet":
        _check_parquet(paths, output)
    folder = form == "parquet" and state is not None
    if output is not None and output.exists() and output.is_dir() != folder:
        raise click.BadParameter(
            f"{output} is no folder, which Parquet with --state needs for its parts"
            if folder
            else f"{output} is a folder; name a file in it",
            param_hint="--output",
        )


def _asked(form: str, path: str) -> str:
    """That a field is needed, and which there are."""
    from ..dedup.guessing import columns_of

    told = f"is needed for {form}: which one to compare"
    if form != "parquet" and os.path.isfile(path) and (first := columns_of(path)):
        return f"{told} of {first!r}; --format text compares whole lines"
    return told


def _check_parquet(paths: list[str], output: Path | None) -> None:
    if output is None:
        raise click.BadParameter("is needed for Parquet: name a file", param_hint="--output")
    for path in paths:
        if not os.path.isfile(path):
            name = "standard input" if path == "-" else path
            raise click.BadParameter(
                f"Parquet is read from its end and needs a file, got {name}", param_hint="FILE"
            )
    for name in (*paths, str(output)):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise click.ClickException(
                f"the name of a Parquet file must be UTF-8, got {name!r}; rename it or link to it"
            ) from error


def _check_output(output: Path | None, paths: list[str], state: Path | None) -> None:
    """Refuse to write over what is read, or the state, and where there is no folder."""
    if output is None:
        return
    if not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    for path in paths:
        if output.exists() and os.path.exists(path) and output.samefile(path):
            raise click.BadParameter(f"{output} is being read; name another", param_hint="--output")
    if state is None:
        return
    if output.exists() and not output.is_file() and not output.is_dir():
        raise click.BadParameter(
            "a pipe or device cannot be cut back to what the state says; name a file",
            param_hint="--output",
        )
    if os.path.realpath(output) in (os.path.realpath(state), str(lock_path(state))):
        raise click.BadParameter(
            f"{output} is the state's own, or its lock; name another", param_hint="--output"
        )


def _seen(state: Path | None, similarity: float, budget: int | None) -> Deduplicator:
    """The de-duplicator, from the state where there is one."""
    from math import inf

    from ..dedup.deduplicator import Deduplicator

    try:
        wanted = Deduplicator(similarity, budget=budget or inf, on_bad="skip")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error
    if state is None or not state.exists():
        return wanted
    held = Deduplicator.load(state)
    if (ours := (held.similarity, held.budget)) != (wanted.similarity, wanted.budget):
        raise click.ClickException(
            f"{state} was begun with a similarity of {ours[0]:g} and a budget of {ours[1]:g}; "
            "go on with those, or name another state"
        )
    return held
