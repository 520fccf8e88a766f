"""Which of the aims the rows meet: differences on the same contexts, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from .rows import FULL, Row
from .table import Floats, interval, is_recall, paired, text

SINGLE_NOT = ("full", "KVzip", "threshold", "ours")  # what is no rival that reads once
AHEAD = {0.25: 0.08, 0.125: 0.18, 0.0625: 0.30}  # of the best single-pass rival at 4k
BELOW = 0.02
REPEATS = ("facts", "logs")
SIZED = {"facts": 0.16, "logs": 0.30, "prose": 0.65}  # part kept at 1k
LOST = 0.05


def judge(rows: Sequence[Row], ours: Sequence[str]) -> str:
    """A line for each aim and variant of ours."""
    lines = ["\nAims"]
    for name in ours:
        lines += [f"{name}:", *_single(rows, name), *_rereading(rows, name), *_novels(rows, name)]
    return "\n".join([*lines, *_sizing(rows)])


def told(met: bool, claim: str) -> str:
    """A verdict as a line."""
    return f"  {'MET   ' if met else 'MISSED'} {claim}"


def rivals(rows: Sequence[Row]) -> list[str]:
    """Ways that read the context once and are not ours."""
    found = {row.way for row in rows if not row.way.startswith(SINGLE_NOT)}
    return sorted(found | ({"h2o, ours", "rkv, ours"} & {row.way for row in rows}))


def at(rows: Sequence[Row], length: int, tasks: Sequence[str] | None = None) -> list[Row]:
    """Rows of a length, of some tasks or of all with answers."""
    return [
        row
        for row in rows
        if row.length == length and (row.task in tasks if tasks else is_recall(row.task))
    ]


def _parts(rows: Sequence[Row]) -> list[float]:
    return sorted({row.part for row in rows if row.part < 1}, reverse=True)


def _closest(rows: Sequence[Row], part: float, name: str) -> tuple[str, Floats] | None:
    """The rival that is best on these contexts, picked after the fact, and our lead over it."""
    found = {other: paired(rows, part, name, other) for other in rivals(rows)}
    found = {other: gaps for other, gaps in found.items() if len(gaps)}
    if not found:
        return None
    other = min(found, key=lambda one: float(found[one].mean()))
    return other, found[other]


def _single(rows: Sequence[Row], name: str) -> Iterator[str]:
    """(a) Above every press that reads once."""
    for length in sorted({row.length for row in rows}):
        for tasks in (*((task,) for task in REPEATS), None):
            here = at(rows, length, tasks)
            for part in _parts(here):
                found = _closest(here, part, name)
                if found is None:
                    continue
                other, gaps = found
                lead = interval(gaps)
                goal = AHEAD.get(part, -BELOW) if 2000 < length < 6000 else -BELOW
                if tasks and length > 6000:
                    continue
                met = lead[1] > 0 if tasks else lead[0] >= goal
                what = (
                    f"{tasks[0]}: interval above 0"
                    if tasks
                    else f"all recall: at least {goal:+.2f}"
                )
                yield told(
                    met,
                    f"(a) {length}, 1/{round(1 / part)}, {what}: {text(lead, '+')} "
                    f"over {other}, n={len(gaps)}",
                )


def _rereading(rows: Sequence[Row], name: str) -> Iterator[str]:
    """(b) Within .03 of KVzip at length, above it where the text repeats."""
    for length in sorted({row.length for row in rows}):
        for tasks in (REPEATS[:1], None):
            here = at(rows, length, tasks)
            for part in _parts(here):
                gaps = paired(here, part, name, "KVzip")
                if not len(gaps) or (tasks is None and length < 2000):
                    continue
                lead = interval(gaps)
                met = lead[0] > 0 if tasks else lead[0] >= -0.03
                what = "facts: above" if tasks else "all recall: within .03 of"
                yield told(
                    met,
                    f"(b) {length}, 1/{round(1 / part)}, {what} KVzip: {text(lead, '+')}, "
                    f"n={len(gaps)}",
                )


def _novels(rows: Sequence[Row], name: str) -> Iterator[str]:
    """(e) Nats of novels no worse than H2O's."""
    for length in sorted({row.length for row in rows}):
        here = [row for row in rows if row.length == length and row.task == "nll_novels"]
        for part in _parts(here):
            mine, other = (
                {row.seed: row.nll for row in here if (row.way, row.part) == (way, part)}
                for way in (name, "h2o, ours")
            )
            gaps = np.array([mine[seed] - other[seed] for seed in sorted(set(mine) & set(other))])
            if len(gaps):
                more = interval(gaps)
                yield told(
                    more[0] <= 0,
                    f"(e) {length}, 1/{round(1 / part)}, novels: nats less H2O's "
                    f"{more[0]:+.3f} [{more[1]:+.3f}, {more[2]:+.3f}], n={len(gaps)}",
                )


def _sizing(rows: Sequence[Row]) -> Iterator[str]:
    """(c) One threshold for everything."""
    lengths = sorted({row.length for row in rows})
    for way in sorted({row.way for row in rows if row.way.startswith("threshold")}):
        kept = {
            (task, length): float(np.mean(found))
            for task in SIZED
            for length in lengths
            if (found := [r.kept for r in rows if (r.way, r.task, r.length) == (way, task, length)])
        }
        lost = {}
        for length in lengths:
            full = {(r.task, r.seed): r.accuracy for r in at(rows, length) if r.way == FULL}
            gaps = [r.accuracy - full[r.task, r.seed] for r in at(rows, length) if r.way == way]
            if gaps:
                lost[length] = interval(gaps)
        if not kept or not lost:
            continue
        short = min(lengths)
        small = all(kept[task, short] <= SIZED[task] for task in SIZED if (task, short) in kept)
        falls = all(
            kept[task, one] >= kept[task, two]
            for task in SIZED
            for one, two in pairwise(lengths)
            if (task, one) in kept and (task, two) in kept
        )
        met = small and falls and all(one[0] >= -LOST for one in lost.values())
        sizes = "; ".join(
            f"{task} " + " ".join(f"{kept[task, n]:.2f}" for n in lengths if (task, n) in kept)
            for task in SIZED
        )
        losses = ", ".join(f"{length}: {text(one, '+')}" for length, one in lost.items())
        yield told(met, f"(c) {way}: kept {sizes}; recall less full {losses}")
