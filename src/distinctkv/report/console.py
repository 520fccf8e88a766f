"""Results in the terminal: a bar while a study runs, a table when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..studies.result import Result
from ..studies.study import Progress as Watch
from .words import paper, spread, verdict

STYLES = {"paper": "", "added": "magenta", "cache": "bold"}


@contextmanager
def bar(console: Console, title: str) -> Iterator[Watch]:
    """A progress bar with the time left; it goes away when the study ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def tables(result: Result) -> Group:
    """The paper's numbers beside ours; then the setting of each row, and what we say of it.

    Two tables, because one would not fit a terminal of 80 columns.
    """
    return Group(_numbers(result), _verdicts(result))


def _numbers(result: Result) -> Table:
    title = f"{result.title} ({result.settings.get('scale')}, {len(result.seeds)} seeds)"
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("mechanism", no_wrap=True)
    claimed = {claim.measure for claim in result.claims}
    for measure in result.rows[0].measures:
        made.add_column(measure, justify="right", no_wrap=True)
        if measure in claimed:
            made.add_column("paper", justify="right", no_wrap=True)
    for row in result.rows:
        cells = [row.label]
        for measure in row.measures:
            cells.append(spread(row.measures[measure]))
            if measure in claimed:
                cells.append(paper(result, row, measure))
        # Text, not str: a label in brackets is a label, not a colour.
        made.add_row(*map(Text, cells), style=STYLES[row.role])
    return made


def _verdicts(result: Result) -> Table:
    made = Table("mechanism", "setting", "verdict", box=box.SIMPLE_HEAD, pad_edge=False)
    for row in result.rows:
        found = verdict(result, row)
        said = "added, not in the paper" if row.role == "added" else f"{found.mark} {found.text}"
        last = Text(said, style="" if found.holds else "red")
        made.add_row(Text(row.label), Text(row.setting), last, style=STYLES[row.role])
    return made
