"""Variants of ours side by side on the contexts that were put aside, in few letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .aims import LOST, SIZED
from .rows import FULL, Row
from .table import Floats, interval, is_recall, paired

SHORT = {"ours, ": "", "importance ": "i", "horizon ": "h", "tighten ": "t", "recent ": "r",
         "attended": "att"}  # fmt: skip
TASKS = (*SIZED, "raw_logs")


def short(way: str) -> str:
    """A name in few letters.

    >>> short("ours, horizon 1024, importance .25, attended")
    'h1024 i.25 att'
    """
    for word, letters in {**SHORT, "threshold ": "", ", ": " "}.items():
        way = way.replace(word, letters)
    return way


def compact(rows: Sequence[Row], name: str, best: str) -> str:
    """All variants less one, pooled recall in points, the best first; nats; and thresholds."""
    lengths = sorted({row.length for row in rows})
    parts = sorted({row.part for row in rows if row.part < 1}, reverse=True)
    ways = list(dict.fromkeys(row.way for row in rows if row.part < 1 and row.way != name))
    n = len({(row.task, row.length, row.seed) for row in rows})
    heads = [f"{length // 1000}k/{round(1 / part)}" for length in lengths for part in parts]
    base = [
        100 * _mean(r.accuracy for r in at if (r.way, r.part) == (name, part) and is_recall(r.task))
        for at in _by_length(rows)
        for part in parts
    ]
    gains = {
        way: [paired(at, part, way, name) for at in _by_length(rows) for part in parts]
        for way in ways
    }
    pooled = {way: np.concatenate(some) for way, some in gains.items()}
    ways.sort(key=lambda way: -float(pooled[way].mean()) if len(pooled[way]) else 0.0)
    lines = [
        f"{n} contexts; recall in points, less {name}; * the interval leaves out 0",
        _line("", [*heads, "all"]),
        _line(name, [f"{one:.0f}" for one in base]),
    ]
    lines += [_line(way, [*map(_starred, gains[way]), _starred(pooled[way], 1)]) for way in ways]
    lines += [*_nats(rows, [name, *ways], parts), *_sizes(rows)]
    return "\n".join([*lines, f"best of {len(ways) + 1} by pooled recall: {best}"])


def _by_length(rows: Sequence[Row]) -> list[list[Row]]:
    lengths = sorted({row.length for row in rows})
    return [[row for row in rows if row.length == length] for length in lengths]


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return float(np.mean(found)) if found else float("nan")


def _line(name: str, cells: Iterable[str]) -> str:
    return f"{short(name):22}" + "".join(f"{cell:>6}" for cell in cells)


def _starred(gaps: Floats, digits: int = 0) -> str:
    if not len(gaps):
        return ""
    mean, low, high = interval(gaps)
    return f"{100 * mean:+.{digits}f}{'*' if low > 0 or high < 0 else ' '}"


def _nats(rows: Sequence[Row], ways: Sequence[str], parts: Sequence[float]) -> list[str]:
    """Thousandths of a nat of continuations more than with the full cache, by task and part."""
    tasks = sorted({row.task for row in rows if not is_recall(row.task)})
    full = {(r.task, r.length, r.seed): r.nll for r in rows if r.way == FULL}
    if not tasks:
        return []
    heads = [f"{task[4:6]}/{round(1 / part)}" for task in tasks for part in parts]
    lines = ["thousandths of a nat more than the full cache", _line("", heads)]
    for way in ways:
        cells = []
        for task in tasks:
            for part in parts:
                mine = [r for r in rows if (r.way, r.task, r.part) == (way, task, part)]
                lost = _mean(r.nll - full[r.task, r.length, r.seed] for r in mine)
                cells.append(f"{1000 * lost:+.0f}")
        lines.append(_line(way, cells))
    return lines


def _sizes(rows: Sequence[Row]) -> list[str]:
    """Per cent kept by a threshold, and points of recall less full, by length; those that meet."""
    ways = sorted({row.way for row in rows if row.way.startswith("threshold")})
    told = f"per cent kept ({' '.join(TASKS)}) and recall less full, by length"
    lines = []
    for way in ways:
        cells, losses = [], []
        for at in _by_length(rows):
            full = {(row.task, row.seed): row.accuracy for row in at if row.way == FULL}
            mine = [row for row in at if row.way == way and is_recall(row.task)]
            kept = [100 * _mean(row.kept for row in mine if row.task == task) for task in TASKS]
            lost = np.array([row.accuracy - full[row.task, row.seed] for row in mine])
            cells.append(" ".join(f"{one:3.0f}" for one in kept) + f" {_starred(lost):>5}")
            losses.append(float(lost.mean()) if len(lost) else 0.0)
        first = [
            _mean(r.kept for r in _by_length(rows)[0] if (r.way, r.task) == (way, task))
            for task in SIZED
        ]
        small = all(one <= most for one, most in zip(first, SIZED.values(), strict=True))
        met = ("small " if small else "") + ("near" if min(losses) >= -LOST else "")
        lines.append((-small, -min(losses), f"{short(way):22}| " + " | ".join(cells) + f" | {met}"))
    return [told, *(line for *_, line in sorted(lines))] if lines else []
