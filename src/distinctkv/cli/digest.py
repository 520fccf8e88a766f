"""``distinctkv digest``: a long log or output in few lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .io import (
    Stop,
    Update,
    file_errors,
    input_paths,
    progress,
    read_twice,
    standard_output,
    total_size,
    valid,
)
from .parse import header_options, open_header, print_damages

if TYPE_CHECKING:
    from ..logs.digest import ParsedLog


@click.command("digest", short_help="A long log or output in few lines.")
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--tokens", type=click.IntRange(min=1), metavar="N", help="Print at most N tokens.")
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Print at most N lines.")
@click.option(
    "--values", is_flag=True, help="Say what stands at each <*>: a range, or the top values."
)
@click.option("--show", type=int, metavar="ID", help="Print the lines of one template instead.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    help="[default: text]",
)
@header_options
def command(
    file: str | None,
    tokens: int | None,
    lines: int | None,
    values: bool,
    show: int | None,
    form: str,
    header: str,
    field: str | None,
) -> None:
    """Print a long log or output in few lines, for a reader or a language model.

    Each template is printed once, in the order of their first lines, with its count, where and
    when it was seen, and an example. With --tokens or --lines as many templates as possible are
    shown, then as many details: first templates with a twentieth of all lines and rare errors in
    turn, then warnings, then the rarest. A token is at most four letters, two digits or one other
    character, so a language model counts fewer. --show prints the lines behind an id, as they are.

    \b
    distinctkv digest build.log --tokens 2000
    make 2>&1 | distinctkv digest --lines 30
    distinctkv digest app.log --show 7
    """
    [path] = input_paths([file] if file else [])
    with Stop() as stop, standard_output(), file_errors(), read_twice(path) as source:
        with progress("read", total_size([source])) as update:
            log = parsed_log(source, header, field, stop, update)
        if show is not None:
            _print_lines(log, show)
        else:
            _print_digest(log, path, tokens, lines, values, form)
        print_damages(log.job.source.damages)
    sys.exit(stop.status or int(bool(log.job.source.damages)))


def parsed_log(
    path: str,
    header: str,
    field: str | None,
    stop: Stop,
    update: Update,
) -> ParsedLog:
    """A file, read once with the header that the options describe."""
    from ..logs.digest import ParsedLog

    return ParsedLog(
        [path],
        header=open_header(header, field),
        detect_header=header == "auto",
        field=field,
        stop=stop,
        update=update,
    )


def _print_lines(log: ParsedLog, number: int) -> None:
    try:
        for one in log.lines_of(number):
            for line in one.lines:
                sys.stdout.write(f"{valid(line)}\n")
    except LookupError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--show") from error


def _print_digest(
    log: ParsedLog, path: str, tokens: int | None, lines: int | None, values: bool, form: str
) -> None:
    from dataclasses import replace

    from ..logs.digest import Digest

    found = replace(Digest.of(log, values=values), name="standard input" if path == "-" else path)
    sys.stdout.write(valid(found.fit(tokens=tokens, lines=lines, form=form).render(form)) + "\n")
