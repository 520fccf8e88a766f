"""``distinctkv diff``: what is new, gone, more or less frequent in a second log."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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
    from ..logs.diff import LogDiff
    from ..logs.digest import ParsedLog

CUT = 200  # characters of an example


@click.command("diff", short_help="Templates that are new, gone, more or less frequent.")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--all", "everything", is_flag=True, help="Also differences that may be chance.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@header_options
def command(
    before: str, after: str, everything: bool, as_json: bool, header: str, field: str | None
) -> None:
    """Compare two logs: templates that are new in B, gone, or have changed in rate.

    A and B are files; one of them may be -, standard input. A row is listed if two parts of one
    log would hardly have it: a two-sided binomial test of the counts, given the lengths of the
    logs, times the number of templates, is at most .01. For rates, lines that come in bursts count
    less, and the share of all lines must change by half. Lines of a template at different levels
    are rows of their own. A template that is new or gone and too rare to tell is counted below the
    table, and --all lists it; a new error is listed in any case, and so is an exception that is
    new in the traces below a template. Values inside a template are not
    compared.

    \b
    distinctkv diff yesterday.log today.log
    journalctl -b | distinctkv diff last-boot.log -
    """
    from ..logs.diff import LogDiff

    paths = input_paths([before, after])
    names = ["standard input" if path == "-" else path for path in paths]
    if paths == ["-", "-"]:
        raise click.UsageError("A and B cannot both be standard input; name a file for one")
    with Stop() as stop, standard_output(), file_errors(), ExitStack() as stack:
        sources = [stack.enter_context(read_twice(path)) for path in paths]
        update = stack.enter_context(progress("read", total_size(sources)))
        logs = open_logs(sources, header, field, stop, update)
        found = LogDiff.of(*logs)
        if as_json:
            sys.stdout.write(json.dumps(found.data(everything), ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(valid(diff_text(found, names, everything)) + "\n")
        damages = {name: why for log in logs for name, why in log.job.source.damages.items()}
        print_damages(damages)
    sys.exit(stop.status or int(bool(damages)))


def open_logs(
    paths: Sequence[str],
    header: str,
    field: str | None,
    stop: Callable[[], bool] = lambda: False,
    update: Update = lambda n_bytes: None,
) -> list[ParsedLog]:
    """Logs, read with the header that the options describe, or with one that fits all."""
    from ..logs.diff import read_logs

    return read_logs(
        paths,
        header=open_header(header, field),
        detect_header=header == "auto",
        field=field,
        stop=stop,
        update=update,
    )


def diff_text(
    found: LogDiff, names: Sequence[str], everything: bool = False, option: str = "--all"
) -> str:
    """A line of counts for each template, then its first line; ``option`` lists all of them."""
    sizes = (found.n_before, found.n_after)
    lines = [
        f"{log} {name}: {n:,} messages" for log, name, n in zip("AB", names, sizes, strict=True)
    ]
    shown = found.rows if everything else found.listed
    for row in shown:
        ratio = f", {row.ratio:.3g}x" if row.change in ("more", "less") else ""
        certain = row.significant or row.change == "same"
        doubt = "" if certain else " (few)" if row.listed else " (may be chance)"
        level = f"{row.level.upper()} " if row.level else ""
        counts = f"{row.before:,} -> {row.after:,}{ratio}"
        example = row.example if len(row.example) <= CUT else f"{row.example[:CUT]}..."
        named = f" with {row.exception}" if row.exception else ""
        lines.append(f"{row.change} {counts}{doubt}: {level}{row.template or '(empty)'}{named}")
        where = "A" if row.change == "gone" else "B"
        lines.append(f"    {where} line {row.first_line:,}: {example}")
    if not shown:
        lines.append(
            "no template is clearly new, gone, more or less frequent; "
            "values inside a template are not compared"
        )
    rare = [(found.rare("new"), "B"), (found.rare("gone"), "A")]
    if not everything and (told := [f"{n:,} only in {name}" for n, name in rare if n]):
        lines.append(f"too rare to tell from chance: {', '.join(told)}; {option} lists them")
    return "\n".join(lines)
