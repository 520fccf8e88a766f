"""The tables of study ``adaptive_real``: traces in, rows out.

Without data there are no traces, and so no numbers, and a row says which stream it wants for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import numpy as np

from .cases import ALLOCATORS, BGL, CASES, LASTS, PAPER, WIDE, WIDELY, Case, Numbers
from .contenders import FAMILIES
from .following import EXTRA, MEASURES, Trace, at_cost
from .result import Row
from .windowed import N_WINDOWS

HEADINGS = {
    "demand": "Distinct items in a window",
    **{one.name: f"{one.label}, {N_WINDOWS} windows; a seed draws the keys" for one in CASES},
    "gain": "The adaptive budget less the matched fixed one, on the same keys",
    "level": "Recall that the adaptive budget gains at equal slots per token",
    "decay": "BGL: recall by the tokens for which a use of a slot counts",
    "closest": "BGL: how near one decay comes to all three of the paper's recalls",
    "wide": f"MovieLens under keys {WIDE} wide, where no movie is taken for another",
}
ITEMS = ("fewest", "most", "most / fewest")
SHOWN = ("recall", "phase end", "per token", "peak")
Runs = Mapping[tuple[str, str], Sequence[Trace]]  # by table and row, a trace per seed
Demand = Sequence[tuple[int, int]]  # tokens and distinct items of each window


def tables(runs: Runs, demands: Mapping[str, Demand]) -> tuple[Row, ...]:
    """All rows; those of a stream that is not here are without measures."""
    rows = []
    for case in CASES:
        rows += [demand_row(case, demands.get(case.name, ()), runs), *stream_rows(case, runs)]
        rows += [gain_row(case, runs), *level_rows(case, runs)]
        rows += [*decay_rows(runs), closest_row(runs)] if case is BGL else wide_rows(case, runs)
    return tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table)))


def of(runs: Runs, table: str, name: str) -> dict[str, list[float]]:
    """The numbers of a run; none without data."""
    found = runs.get((table, name), ())
    return {word: [MEASURES[word](one) for one in found] for word in SHOWN if found}


def demand_row(case: Case, demand: Demand, runs: Runs) -> Row:
    """The working set from window to window; the stream is one, so it is the same for all seeds."""
    n_seeds = len(runs.get((case.name, "surprise"), ()))
    items = [n_items for _, n_items in demand]
    exact = (min(items), max(items), max(items) / min(items)) if items else ()
    numbers = {word: [float(n)] * n_seeds for word, n in zip(ITEMS, exact, strict=False)}
    setting = f"{N_WINDOWS} windows of equal time"
    return case.row("demand", case.name, case.label, numbers, setting, "paper")


def stream_rows(case: Case, runs: Runs) -> Iterator[Row]:
    """A row per contender."""
    for one in case.contenders():
        numbers = of(runs, case.name, one.name)
        yield case.row(case.name, one.name, one.label, numbers, one.setting, one.role)


def gain_row(case: Case, runs: Runs) -> Row:
    """What the adaptive budget recalls and holds beyond the matched fixed one."""
    ours, theirs = (of(runs, case.name, name) for name in ("surprise", f"b{case.matched}"))
    numbers = {word: np.subtract(ours[of], theirs[of]) for word, of in EXTRA.items() if ours}
    label = f"Gain on {case.matched}, {case.label}"
    return case.row("gain", case.name, label, numbers, f"B={case.matched}", "paper")


def level_rows(case: Case, runs: Runs) -> Iterator[Row]:
    """What the adaptive budget recalls beyond each family of rivals, at its own slots per token."""
    for family, prefix in FAMILIES.items():
        sizes = case.ladder(prefix)
        ours = runs.get((case.name, "surprise"), ())
        rivals = zip(*(runs.get((case.name, f"{prefix}{n}"), ()) for n in sizes), strict=True)
        theirs = [at_cost(rival, our) for rival, our in zip(rivals, ours, strict=True)]
        own = of(runs, case.name, "surprise")
        numbers: Numbers = {}
        if own:
            numbers = {
                "gain": np.subtract(own["recall"], theirs),
                "adaptive": own["recall"],
                "rival": theirs,
                "per token": own["per token"],
            }
        label = f"Gain on {family}, {case.label}"
        setting = f"between {', '.join(map(str, sizes))}"
        yield case.row("level", f"{case.name}_{family}", label, numbers, setting, "added")


def decay_rows(runs: Runs) -> Iterator[Row]:
    """Recall of each allocator, and the adaptive one's slots, by how long a use counts."""
    for lasts in LASTS:
        name = f"lasts_{lasts:g}"
        recalls = recalls_at(runs, lasts)
        numbers: Numbers = {}
        if recalls:
            numbers = {
                **recalls,
                "gain": np.subtract(recalls["adaptive"], recalls["fixed"]),
                "adaptive slots": of(runs, "adaptive", name)["phase end"],
            }
        label = "For ever" if lasts == inf else f"For {lasts:,} tokens"
        setting = f"decay {1 - 1 / lasts:.4g}"
        yield BGL.row("decay", name, label, numbers, setting, "added")


def recalls_at(runs: Runs, lasts: float) -> dict[str, list[float]]:
    """Recall of each allocator where a use counts for so many tokens."""
    found = {name: of(runs, name, f"lasts_{lasts:g}") for name in ALLOCATORS}
    return {name: one["recall"] for name, one in found.items() if one}


def closest_row(runs: Runs) -> Row:
    """Of all decays the one whose worst miss of the paper's three recalls is smallest."""
    misses = {
        lasts: np.max([np.abs(np.subtract(found[name], PAPER[name])) for name in PAPER], axis=0)
        for lasts in LASTS
        if (found := recalls_at(runs, lasts))
    }
    best = min(misses, key=lambda lasts: misses[lasts].mean(), default=inf)
    numbers = {"furthest miss": misses[best]} if misses else {}
    setting = f"decay {1 - 1 / best:.4g}, the best of {len(LASTS)}"
    return BGL.row("closest", "together", "All three at one decay", numbers, setting, "paper")


def wide_rows(case: Case, runs: Runs) -> Iterator[Row]:
    """The same race where keys do not collide."""
    for one in case.contenders():
        if one.name in WIDELY:
            found = of(runs, "wide", one.name)
            numbers = {word: found[word] for word in ("recall", "phase end") if found}
            yield case.row("wide", one.name, one.label, numbers, one.setting, "added")
