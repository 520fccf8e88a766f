"""Results in the terminal: the answer of a study, and its claims in one short table."""

from __future__ import annotations

from rich import box
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from ..result import Result, measures_of
from .text import (
    MARKS,
    UNMEASURED,
    cell,
    claimed,
    missing_notice,
    number,
    quantity,
    score,
    seeds_behind,
)

MEASURES = 3  # of a table that is shown without claims


def tables(result: Result) -> Group:
    """The answer, and the claims that could have failed; without any, the first table.

    The page has the other claims and all tables.
    """
    title = f"{result.title} ({result.settings.get('scale')}, {seeds_behind(result.rows)})"
    made: list[RenderableType] = [Text(title, style="bold")]
    if result.missing:
        notice = missing_notice(result)
        made.append(Text(notice if result.rows else f"{UNMEASURED}\n{notice}", "yellow"))
    made += [Text(answer.replace("`", "")) for answer in result.findings[:1] if answer]
    if any(claim.independent for claim in result.claims):
        made.append(_claims(result))
    elif result.rows:
        made.append(_numbers(result))
    made.append(Text(f"{score(result)}\n", "dim"))
    return Group(*made)


def _table(*columns: str) -> Table:
    """An empty table; where room is short the cases wrap, and no number is cut."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(columns):
        justify: JustifyMethod = "left" if place == 0 or name == "verdict" else "right"
        table.add_column(name, justify=justify, no_wrap=place > 0)
    return table


def _claims(result: Result) -> Table:
    labels = {(row.table, row.name): row.label for row in result.rows}
    table = _table("case", "paper", "measured ± margin", "tolerance", "verdict")
    for claim in result.claims:
        if not claim.independent:
            continue
        case = f"{labels.get((claim.table, claim.row), claim.row)}, {claim.measure}"
        measured = "–" if claim.measured is None else number(claim.measured)
        if claim.margin:
            measured += f" ± {quantity(claim.margin)}"
        cells = (case, claimed(claim), measured, quantity(claim.tolerance))
        # Text, not str: a label in brackets is a label, not a colour.
        style = "bold" if claim.verdict == "differs" else ""
        table.add_row(
            *map(Text, cells), Text(f"{MARKS[claim.verdict]} {claim.verdict}"), style=style
        )
    return table


def _numbers(result: Result) -> Table:
    rows = next(iter(result.tables.values()))
    measures = measures_of(rows)[:MEASURES]
    table = _table("case", *measures)
    for row in rows:
        table.add_row(*map(Text, (row.label, *(cell(row, measure) for measure in measures))))
    return table
