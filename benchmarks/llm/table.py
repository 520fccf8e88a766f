"""Means with 95 % bootstrap intervals, and differences on the same contexts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .rows import FULL, Row

Floats = NDArray[np.float64]
DRAWS = 4000


def interval(numbers: Sequence[float] | Floats) -> tuple[float, float, float]:
    """The mean, and where 95 of 100 means of contexts drawn again lie.

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    values = np.asarray(numbers, float)
    low, high = np.quantile(_drawn(len(values)) @ values / len(values), (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


@cache
def _drawn(n: int) -> Floats:
    """How often each of n contexts is drawn, each time that n of them are."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(float)


def text(found: tuple[float, float, float], sign: str = "") -> str:
    """A mean and its interval, as short as can be."""
    mean, low, high = (f"{one:{sign}.2f}" for one in found)
    return f"{mean} [{low}, {high}]"


def is_recall(task: str) -> bool:
    """Whether a task has answers that are right or wrong."""
    return not task.startswith("nll")


def score(row: Row) -> float:
    """Accuracy, or nats of a continuation."""
    return row.accuracy if is_recall(row.task) else row.nll


def paired(rows: Iterable[Row], part: float, one: str, other: str) -> Floats:
    """Accuracy of one way less that of another on every context that both have."""
    there: dict[str, dict[tuple[str, int], float]] = {one: {}, other: {}}
    for row in rows:
        if row.way in there and row.part in (part, 1.0) and is_recall(row.task):
            there[row.way][row.task, row.seed] = row.accuracy
    both = sorted(set(there[one]) & set(there[other]))
    return np.array([there[one][key] - there[other][key] for key in both])


def show(rows: Sequence[Row], ours: Sequence[str], parts: Sequence[float]) -> str:
    """The tables of every length, as text."""
    lines = []
    for length in sorted({row.length for row in rows}):
        here = [row for row in rows if row.length == length]
        for part in parts:
            lines += [f"\n{length} tokens, kept 1/{round(1 / part)}", *_table(here, part)]
            for name in ours:
                lines += _lead(here, part, name)
        lines += _sized(here)
    return "\n".join(lines)


def _table(rows: Sequence[Row], part: float) -> list[str]:
    """A line for each way, best pooled recall first; a column for each task."""
    chosen = [row for row in rows if row.way == FULL or row.part == part]
    tasks = sorted({row.task for row in chosen}, key=lambda name: (not is_recall(name), name))
    recall = [name for name in tasks if is_recall(name)]
    counts = {name: len({row.seed for row in chosen if row.task == name}) for name in tasks}
    heads = [f"{name} n={counts[name]}" for name in tasks]
    lines = [f"{'':28}{'pooled recall':>20}" + "".join(f"{head:>20}" for head in heads)]
    told = []
    for way in {row.way for row in chosen}:
        mine = [row for row in chosen if row.way == way]
        pool = [row.accuracy for row in mine if row.task in recall]
        cells = [interval(pool)] if pool else [None]
        for name in tasks:
            numbers = [score(row) for row in mine if row.task == name]
            cells.append(interval(numbers) if numbers else None)
        shown = "".join(f"{text(cell) if cell else '':>20}" for cell in cells)
        told.append((-(cells[0] or (0.0,))[0], f"{way:28}{shown}"))
    return [*lines, *(line for _, line in sorted(told))]


def _lead(rows: Sequence[Row], part: float, name: str) -> list[str]:
    """Ours less each rival, on the same contexts; the closest rival first."""
    rivals = {row.way for row in rows if row.part == part and row.way != name} | {FULL}
    found = {other: paired(rows, part, name, other) for other in rivals}
    leads = sorted((interval(one), other) for other, one in found.items() if len(one))
    told = [f"  {text(lead, '+')} {other}" for lead, other in leads]
    return [f"{name} less, pooled recall:", *told] if told else []


def _sized(rows: Sequence[Row]) -> list[str]:
    """What a threshold keeps, and what it loses against the full cache."""
    lines = []
    for way in sorted({row.way for row in rows if row.way.startswith("threshold")}):
        lines.append(f"\n{way}: part kept, and score less that of the full cache")
        for task in sorted({row.task for row in rows}):
            full = {row.seed: score(row) for row in rows if row.way == FULL and row.task == task}
            mine = [row for row in rows if row.way == way and row.task == task]
            if mine:
                kept = interval([row.kept for row in mine])
                lost = interval([score(row) - full[row.seed] for row in mine])
                lines.append(f"  {task:20} kept {text(kept)}   {text(lost, '+')}")
    return lines


def _starred(gaps: Floats) -> str:
    if not len(gaps):
        return ""
    mean, low, high = interval(gaps)
    return f"{mean:+.3f}{'*' if low > 0 or high < 0 else ' '}"


def cells_of(name: str, cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {name:42} |" + "".join(f" {cell:>10} |" for cell in cells)


def brief(rows: Sequence[Row]) -> str:
    """The full cache on each task and length, with the number of contexts."""
    lines = ["\nfull cache: accuracy or nats, and contexts"]
    for task in sorted({row.task for row in rows}):
        cells = []
        for length in sorted({row.length for row in rows}):
            found = [score(r) for r in rows if (r.way, r.task, r.length) == (FULL, task, length)]
            cells.append(f"{np.mean(found):.2f} ({len(found)})" if found else "")
        lines.append(cells_of(task, cells))
    return "\n".join(lines)


def all_sized(rows: Sequence[Row]) -> list[str]:
    """What every threshold keeps of each task and length, and what it loses in all."""
    lines = []
    ways = sorted({row.way for row in rows if row.way.startswith("threshold")})
    tasks = sorted({row.task for row in rows if is_recall(row.task)})
    for length in sorted({row.length for row in rows}):
        here = [row for row in rows if row.length == length]
        full = {(row.task, row.seed): row.accuracy for row in here if row.way == FULL}
        if ways:
            lines += [f"\n{length} tokens: part kept by a threshold, and recall less full"]
            lines.append(cells_of("", [*(task[:10] for task in tasks), "recall"]))
        for way in ways:
            mine = [row for row in here if row.way == way and is_recall(row.task)]
            kept = [[row.kept for row in mine if row.task == task] for task in tasks]
            lost = np.array([row.accuracy - full[row.task, row.seed] for row in mine])
            cells = [f"{np.mean(one):.2f}" if one else "" for one in kept]
            lines.append(cells_of(way, [*cells, _starred(lost)]))
    return lines


def choose(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The way with the best pooled recall over all parts; the first of equals."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for row in rows:
        if row.way in found and is_recall(row.task):
            found[row.way].append(row.accuracy)
    return max(names, key=lambda name: float(np.mean(found[name] or [-1.0])))
