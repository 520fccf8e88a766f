"""Results in the terminal: the table of a study, and the claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from ..result import Result, Row, measures_of
from .text import UNMEASURED, cell, missing_notice, paper, seeds_behind, verdict

# A name and what stands under it.
Column = tuple[str, list[str]]
GAP = 3  # between two columns
SETTING = 24  # room that a setting asks for at most
STYLES = {"paper": "", "added": "magenta", "cache": "bold"}


def tables(result: Result) -> Group:
    """Every table of a study: the paper's numbers beside ours, and what we say of them.

    Settings and verdicts are printed below the numbers, so that both fit a narrow terminal.
    """
    title = f"{result.title} ({result.settings.get('scale')}, {seeds_behind(result)})"
    made: list[RenderableType] = [Text(title, style="bold")]
    if result.missing:
        notice = missing_notice(result)
        made.append(Text(notice if result.rows else f"{UNMEASURED}\n{notice}", "yellow"))
    for name, rows in result.tables.items():
        claimed = frozenset(claim.measure for claim in result.claims_of(*rows))
        heading = result.headings.get(name)
        if not measures_of(rows):
            heading = f"{heading or 'Table'}: {UNMEASURED}"
        made.append(Numbers(result, rows, claimed, heading))
        if claimed:
            made.append(_verdicts(result, rows))
    return Group(*made)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The measures of some rows, in as many tables as the width of the terminal asks for."""

    result: Result
    rows: Sequence[Row]
    claimed: Set[str]
    heading: str | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables, one below the other; each begins with the cases."""
        cases = [("case", [row.label for row in self.rows])]
        parts, left = [list(cases)], options.max_width
        for together in self._columns():
            needed = sum(_width(column) for column in together)
            if _width(*parts[-1]) + needed > left and len(parts[-1]) > 1:
                parts.append(list(cases))
            parts[-1] += together
        for part in parts:
            yield self._table(part, self.heading if part is parts[0] else None)

    def _columns(self) -> Iterator[list[Column]]:
        """Columns that stay together: a measure, and the paper's beside it."""
        for measure in measures_of(self.rows):
            together = [(measure, [cell(row, measure) for row in self.rows])]
            if measure in self.claimed:
                together.append(("paper", [paper(self.result, row, measure) for row in self.rows]))
            yield together
        if not self.claimed and any(row.setting for row in self.rows):
            yield [("setting", [row.setting for row in self.rows])]

    def _table(self, columns: Sequence[Column], heading: str | None) -> Table:
        made = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for name, _ in columns:
            words = name in ("case", "setting")
            # Where room is short words go on in the next line; a number is never cut.
            made.add_column(name, justify="left" if words else "right", no_wrap=not words)
        for row, cells in zip(self.rows, zip(*(c for _, c in columns), strict=True), strict=True):
            style = STYLES[row.role] if self.claimed or row.role == "cache" else ""
            # Text, not str: a label in brackets is a label, not a colour.
            made.add_row(*map(Text, cells), style=style)
        return made


def _width(*columns: Column) -> int:
    """Characters of a line; the rest of a long setting goes to the next."""
    widths = [max(len(name), *map(len, cells)) + GAP for name, cells in columns]
    return sum(
        min(width, SETTING) if name == "setting" else width
        for width, (name, _) in zip(widths, columns, strict=True)
    )


def _verdicts(result: Result, rows: Sequence[Row]) -> Table:
    made = Table("case", "setting", "verdict", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        found = verdict(result, row)
        if not found.text and row.role != "added":
            continue
        lines = "\n".join(found.lines) or found.text
        said = f"{found.mark} {lines}" if found.text else "added, not in the paper"
        last = Text(said, style="red" if found.verdict == "differs" else "")
        made.add_row(Text(row.label), Text(row.setting), last, style=STYLES[row.role])
    return made
