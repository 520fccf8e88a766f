"""The tables of a page of the documents, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .rows import FULL, Row
from .table import all_sized, brief, cells_of, interval, is_recall, paired, score, text


def markdown(rows: Sequence[Row], ours: Sequence[str]) -> str:
    """The tables of a page: pooled recall at each length, and ours less the others."""
    lines = [brief(rows)]
    parts = sorted({row.part for row in rows if row.part < 1}, reverse=True)
    heads = " | ".join(f"1/{round(1 / part)}" for part in parts)
    for length in sorted({row.length for row in rows}):
        here = [row for row in rows if row.length == length]
        ways = {row.way for row in here if row.part < 1}
        for title, tasks in _groups(here):
            some = [row for row in here if row.task in tasks]
            lines += [
                "",
                f"| {length} tokens, {title} | n | {heads} |",
                "|---" * (len(parts) + 2) + "|",
            ]
            found = {way: [_cell(some, way, part) for part in parts] for way in (FULL, *ways)}
            sign = 1 if title.startswith("nats") else -1
            middle = len(parts) // 2
            order = sorted(found, key=lambda way: sign * found[way][middle][0])
            for way in order:
                shown = " | ".join(cell[1] for cell in found[way])
                name = f"**{way}**" if way in ours else way
                n = len({(row.task, row.seed) for row in some if row.way == way})
                lines.append(f"| {name} | {n} | {shown} |")
        lines += [f"\n{length} tokens, on the contexts that both have", *_leads(here, ours, parts)]
    return "\n".join([*lines, *all_sized(rows), *_clock(rows)])


def _groups(rows: Sequence[Row]) -> list[tuple[str, set[str]]]:
    tasks = sorted({row.task for row in rows})
    recall = {task for task in tasks if is_recall(task)}
    found = [("recall of all tasks", recall)] if recall else []
    return found + [(task if task in recall else f"nats, {task}", {task}) for task in tasks]


def _cell(rows: Sequence[Row], way: str, part: float) -> tuple[float, str]:
    numbers = [score(r) for r in rows if r.way == way and r.part == (1.0 if way == FULL else part)]
    if not numbers:
        return 0.0, ""
    found = interval(numbers)
    return found[0], text(found)


def _leads(rows: Sequence[Row], ours: Sequence[str], parts: Sequence[float]) -> list[str]:
    heads = " | ".join(f"1/{round(1 / part)}" for part in parts)
    lines = []
    for name in ours:
        lines += ["", f"| {name} less | n | {heads} |", "|---" * (len(parts) + 2) + "|"]
        for other in sorted({row.way for row in rows if row.way != name and row.part < 1}):
            gaps = [paired(rows, part, name, other) for part in parts]
            cells = [text(interval(gap), "+") if len(gap) else "" for gap in gaps]
            if any(cells):
                n = max(map(len, gaps))
                lines.append(f"| {other} | {n} | {' | '.join(cells)} |")
    return lines


def _clock(rows: Sequence[Row]) -> list[str]:
    """Median seconds of each way, all sizes together, while other processes ran."""
    lengths = sorted({row.length for row in rows})
    lines = [
        "",
        "median seconds to compress, all sizes, on a shared device",
        cells_of("", map(str, lengths)),
    ]
    for way in sorted({row.way for row in rows if row.way != FULL}):
        spent = [[r.seconds for r in rows if (r.way, r.length) == (way, at)] for at in lengths]
        lines.append(cells_of(way, [f"{np.median(one):.2f}" if one else "" for one in spent]))
    return lines
