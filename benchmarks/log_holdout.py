"""What the rules of the log parser are worth on systems they were not chosen for.

The parser's rules were written with all systems in view. Here they are chosen again by machine, by
the sum of GA and FGA on half of the systems: forward, from the bare rule (equal words, and a word
with a digit is a value), and backward, from all rules; then the two numbers. The choice is frozen
and measured on the other half. It matters what counts as one rule, so there are three answers: the
six rules that a person would state ("what looks like a value is one"), the same with a rule for
each kind of value, and every switch in the code, each clause of a regular expression almost. The
coarser it is, the fewer ways to fit the half, but the more of what was written with the other half
in view comes along: no answer leaves out the writing. Run ``python -m benchmarks.log_holdout``
(minutes), with ``--quick`` (the six rules, numbers as they are), or with ``--fine`` for the third
answer too (ten minutes more). Numbers alone are left out by study ``logs``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import ne
from random import Random
from typing import Any

import numpy as np

from reproduction.data.loghub import Log
from reproduction.studies.logs import GRID, two_fold_splits

from .common import keep, stamp, table, verdict
from .loglines import systems
from .switches import CUT, GRAINS, Choice, parse

# Settings to choose from: the defaults, and those that differ from them in one number.
NUMBERS = [one for one in GRID if sum(map(ne, one, Choice().numbers)) <= 1]
N_DEALS = 12  # of the finer grains, each by a seed; the six rules are dealt in all ways
Units = Mapping[str, tuple[str, ...]]
Measure = Callable[[Iterable[str], Choice], tuple[float, float]]
Select = Callable[[Measure, Sequence[str], Units], frozenset[str]]
Result = dict[str, Any]


def forward(measure: Measure, names: Sequence[str], units: Units) -> frozenset[str]:
    """Begin with the bare rule; add the best unit, alone or with the cut that most of them need."""
    cut = {unit for unit, switches in units.items() if CUT in switches}
    best: frozenset[str] = frozenset()
    while True:
        more = [best | {unit, *also} for unit in units for also in ((), cut)]
        found = max(more, key=lambda some: _sum(measure, names, units, some))
        if _sum(measure, names, units, found) <= _sum(measure, names, units, best):
            return best
        best = found


def backward(measure: Measure, names: Sequence[str], units: Units) -> frozenset[str]:
    """Begin with all units; drop the least useful for as long as nothing is lost."""
    best = frozenset(units)
    while best:
        fewer = [best - {unit} for unit in units if unit in best]
        found = max(fewer, key=lambda some: _sum(measure, names, units, some))
        if _sum(measure, names, units, found) < _sum(measure, names, units, best):
            break
        best = found
    return best


WAYS: Mapping[str, Select] = {"forward": forward, "backward": backward}


def _sum(measure: Measure, names: Sequence[str], units: Units, some: Iterable[str]) -> float:
    return round(sum(measure(names, _choice(units, some))), 9)


def _choice(units: Units, some: Iterable[str]) -> Choice:
    return Choice(frozenset(switch for unit in some for switch in units[unit]))


def tuned(measure: Measure, names: Sequence[str], choice: Choice) -> Choice:
    """The choice with the numbers that are best on these systems."""
    choices = [choice._replace(numbers=numbers) for numbers in NUMBERS]
    return max(choices, key=lambda choice: round(sum(measure(names, choice)), 9))


def deals(names: Sequence[str], every: bool) -> list[list[str]]:
    """Halves of the systems: in every way, or dealt by a few seeds."""
    if every:
        return [
            [names[place] for place in np.flatnonzero(deal)] for deal in two_fold_splits(len(names))
        ]
    return [sorted(Random(seed).sample(names, len(names) // 2)) for seed in range(N_DEALS)]


def leave(
    measure: Measure, names: Sequence[str], units: Units, select: Select, dealt: list[list[str]],
    tune: bool,
) -> list[Result]:  # fmt: skip
    """Choose on one half and measure on the other, for every deal."""
    found = []
    for fitted in dealt:
        kept = select(measure, fitted, units)
        choice = _choice(units, kept)
        choice = tuned(measure, fitted, choice) if tune else choice
        others = [name for name in names if name not in fitted]
        found.append({
            "fitted": fitted, "kept": sorted(kept), "numbers": choice.numbers,
            "on the half": measure(fitted, choice), "on the other": measure(others, choice),
            "by system": {name: measure([name], choice)[0] for name in others},
        })  # fmt: skip
    return found


def summary(grain: str, way: str, n_units: int, found: list[Result]) -> list[str]:
    """A row of the table."""
    half, other = (np.array([one[key] for one in found]) for key in ("on the half", "on the other"))
    ga = other[:, 0]
    figures = (half[:, 0].mean(), ga.mean(), ga.std(ddof=1), ga.min(), other[:, 1].mean())
    return [grain, str(n_units), way, str(len(found)), *(f"{one:.3f}" for one in figures),
            f"{(ga >= 0.9).mean():.0%}"]  # fmt: skip


def by_system(found: list[Result], names: Sequence[str]) -> dict[str, float]:
    """GA of each system over the deals that left it out."""
    gas: dict[str, list[float]] = {name: [] for name in names}
    for one in found:
        for name, ga in one["by system"].items():
            gas[name].append(ga)
    return {name: float(np.mean(each)) for name, each in gas.items() if each}


def falls(measure: Measure, names: Sequence[str], units: Units) -> dict[str, list[float]]:
    """What GA falls by on each system without a unit."""
    whole = {name: measure([name], _choice(units, units))[0] for name in names}
    return {
        unit: [
            whole[name] - measure([name], _choice(units, units.keys() - {unit}))[0]
            for name in names
        ]
        for unit in units
    }


def measuring(logs: Mapping[str, Log]) -> Measure:
    """Mean GA and FGA of some systems under a choice; nothing is parsed twice."""

    @cache
    def one(name: str, choice: Choice) -> tuple[float, float]:
        return parse(logs[name], choice)

    def measure(names: Iterable[str], choice: Choice) -> tuple[float, float]:
        ga, fga = zip(*(one(name, choice) for name in names), strict=True)
        return sum(ga) / len(ga), sum(fga) / len(fga)

    return measure


def show(result: Result, rows: list[list[str]], names: Sequence[str]) -> None:
    """The table of all grains; then, of the first, which rules are kept and which systems fall."""
    print()
    table(["a rule is", "rules", "chosen", "deals", "GA, half", "GA, other", "sd", "worst",
           "FGA, other", "GA >= .9"], rows)  # fmt: skip
    ways = dict(zip(WAYS, result["deals"].values(), strict=False))
    print("\n  the first: GA lost on each system without the rule, and deals that keep it")
    table(["", *names, *ways],
          [[unit, *(f"{fall:.3f}".replace("0.000", "") for fall in lost),
            *(f"{np.mean([unit in one['kept'] for one in found]):.0%}" for found in ways.values())]
           for unit, lost in result["falls"].items()])  # fmt: skip
    for way, found in ways.items():
        left = by_system(found, names)
        print(f"  {way}, left out: " + ", ".join(f"{name} {ga:.2f}" for name, ga in left.items()))
    for grain, n_rules, way, n_deals, _, ga, *_ in rows:
        verdict(f"{grain} ({n_rules}), {way}, {n_deals} deals: GA {ga} left out >= .90",
                float(ga) >= 0.9)  # fmt: skip


def main() -> None:
    """Choose, measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.log_holdout", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the six rules, numbers as they are")
    parser.add_argument("--fine", action="store_true", help="every switch in the code as well")
    asked = parser.parse_args()
    facts = stamp()
    logs = {log.system: log for log in systems()}
    names, measure = sorted(logs), measuring(logs)
    rules, *_ = GRAINS
    whole = _choice(GRAINS[rules], GRAINS[rules])
    for name, choice in {"no rules": Choice(), "all rules": whole}.items():
        print("  {}: GA {:.3f}, FGA {:.3f} on all systems".format(name, *measure(names, choice)))
    finer = [] if asked.quick else [*GRAINS][: 3 if asked.fine else 2]
    rows, dealt = [], {}
    for grain, every in [(rules, True), *((grain, False) for grain in finer)]:
        units, deal = GRAINS[grain], deals(names, every)
        for way, select in WAYS.items():
            found = leave(measure, names, units, select, deal, tune=not asked.quick)
            dealt[f"{grain}, {way}, {len(deal)} deals"] = found
            rows.append(summary(grain, way, len(units), found))
    result = {"machine": facts, "falls": falls(measure, names, GRAINS[rules]), "deals": dealt}
    show(result, rows, names)
    keep("log_holdout", result)


if __name__ == "__main__":
    main()
