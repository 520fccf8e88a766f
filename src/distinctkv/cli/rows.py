"""Templates as people and programs read them: a table, JSON lines, CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, fields
from typing import TYPE_CHECKING

from .io import visible

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..logs.listing import Row

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for one begins so
WIDE = 90  # columns, from which times have a column of their own


def write_json(found: Sequence[Row]) -> None:
    """One object per line; without times if no line has one."""
    timed = any(row.first_time for row in found)
    for row in found:
        held = asdict(row)
        for name in ("first_time", "last_time"):
            held[name] = held[name] or None
            if not timed:
                del held[name]
        sys.stdout.write(json.dumps(held, ensure_ascii=False) + "\n")


def write_csv(found: Iterable[Row]) -> None:
    """A table for other programs, with the first of the examples; text is never a formula."""
    writer = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    from ..logs.listing import Row

    writer.writerow([*(field.name for field in fields(Row)[:-1]), "example"])
    for row in found:
        writer.writerow(map(_cell, [*astuple(row)[:-1], *row.examples[:1]]))


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def table(found: Sequence[Row], width: int) -> Table:
    """A table for a terminal of some width: the template, an example, when it was seen."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("count", justify="right", no_wrap=True)
    made.add_column("share", justify="right", no_wrap=True)
    if width >= WIDE:
        made.add_column("first and last seen", no_wrap=True, style="dim")
    made.add_column("template and example", ratio=1)
    for row in found:
        shown = [styled(row.template)]
        if row.tells_more:
            example = visible(row.examples[0])
            shown.append(Text(example, style="dim", no_wrap=True, overflow="ellipsis"))
        first, last = visible(row.first_time), visible(row.last_time)
        if not first:
            first, last = f"line {row.first_line:,}", f"line {row.last_line:,}"
        seen = [Text(f"{first}\n{last}")]
        if width < WIDE:
            shown.append(Text(f"{seen.pop()}", style="dim"))
        made.add_row(f"{row.count:,}", f"{row.share:.1%}", *seen, Group(*shown))
    return made


def styled(template: str) -> Text:
    """A template with its values in a colour of their own."""
    from rich.text import Text

    text = Text(visible(template) or "(empty)", overflow="fold")
    text.highlight_regex(r"<\*>", "cyan")
    return text
