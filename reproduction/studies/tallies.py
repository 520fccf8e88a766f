"""The tables of study ``logs``: scores in, rows out.

A parser or a system that is not on this machine has no scores; its rows say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from ..result import Measure, Role, Row
from . import drain
from .halves import left_out
from .parsers import FEW, PAPER, RARE, TAU, Parser, contenders
from .runner import absent
from .scores import Scores

MEASURES = {"GA": "ga", "FGA": "fga", "PA": "pa", "FTA": "fta", "found": "found", "true": "true"}
# The bare rule: its similarities, and thresholds at which no line lies on the border.
RULES = {
    "numbers_alike": "Equal words, digits alike",
    "in_place": "Equal words",
    "bags": "Bags of words",
}
TAUS = (0.3, 0.45, 0.55, 0.62, PAPER, 0.76)
SPOKEN = ("HDFS", "BGL")  # the logs of which the paper speaks
# The parser's numbers (tau, few, rare), and orders in which all of them are tried.
GRID = tuple(product((0.2, TAU, 0.5), (2, FEW, 6), (5.0, RARE, 20.0)))
GRID_ORDERS = 2
SHARDS = (2, 4, 16)
HEADINGS = {
    "average": "The mean over systems, one setting for all; a seed is an order of the lines",
    "ga": "GA by system",
    "systems": "LogParser by system",
    "bare": "The bare rule by threshold, on the two logs of which the paper speaks",
    "order": "GA, the mean over systems: what the order of the lines changes",
    "shards": "Systems in which parsers on shards, absorbed, have the templates of one pass",
    "left_out": f"The parser's numbers, of {len(GRID)} settings, chosen on half of the systems and "
    "measured on the other half",
}
Scored = Mapping[tuple[str, str], Sequence[Scores]]  # by contender and system, in each order
Alike = Mapping[int, Sequence[int]]  # systems that are so, by the number of shards, in each order


def at(rule: str, tau: float) -> str:
    """The name of the bare rule at a threshold.

    >>> at("bags", 0.55)
    'bags_55'
    """
    return f"{rule}_{100 * tau:.0f}"


def tables(scored: Scored, alike: Alike, names: Sequence[str]) -> tuple[Row, ...]:
    """All rows; those of a parser or a system that is not here are without measures."""
    return (
        *(average_row(scored, names, one) for one in contenders()),
        *(ga_row(scored, names, one) for one in contenders()),
        *(system_row(scored, name) for name in names),
        *(bare_row(scored, rule, tau) for rule, tau in product(RULES, TAUS)),
        *(order_row(scored, names, one) for one in contenders()),
        *(shards_row(alike, n_shards, len(names)) for n_shards in SHARDS),
        *left_out_rows(scored, names),
    )


def row(table: str, one: Parser, measures: Mapping[str, Measure], setting: str = "") -> Row:
    """A row for a parser; one that is not here says how to get it."""
    said = f"to measure it, {drain.GET}" if one.absent else setting
    return Row(one.name, one.label, measures, said, one.role, table, one.absent)


def average_row(scored: Scored, names: Sequence[str], one: Parser) -> Row:
    """The mean over systems of every measure."""
    measures = {
        word: Measure.of(means(scored, names, one.name, of))
        for word, of in MEASURES.items()
        if not one.absent
    }
    return row("average", one, measures, one.setting)


def ga_row(scored: Scored, names: Sequence[str], one: Parser) -> Row:
    """GA on each system."""
    found = {} if one.absent else {name: numbers(scored, one.name, name, "ga") for name in names}
    return row("ga", one, {name: Measure.of(each) for name, each in found.items()})


def system_row(scored: Scored, name: str) -> Row:
    """Every measure of our parser on a system."""
    found = {word: numbers(scored, "ours", name, of) for word, of in MEASURES.items()}
    measures = {word: Measure.of(each) for word, each in found.items()}
    return Row(name, name, measures, "", "cache", "systems")


def bare_row(scored: Scored, rule: str, tau: float) -> Row:
    """GA and templates of the bare rule on the logs that the paper names."""
    name, gone = at(rule, tau), absent(*(f"loghub/{system}" for system in SPOKEN))
    measures = {
        f"{system} {word}": Measure.of(numbers(scored, name, system, MEASURES[word]))
        for system, word in product(SPOKEN, ("GA", "found"))
        if not gone
    }
    role: Role = "paper" if (rule, tau) == ("numbers_alike", PAPER) else "added"
    label = f"{RULES[rule]}, tau {tau}"
    return Row(name, label, measures, f"tau {tau}", role, "bare", ", ".join(gone))


def order_row(scored: Scored, names: Sequence[str], one: Parser) -> Row:
    """GA in the file's order, over all orders, and the furthest that a shuffle takes it."""
    measures = {}
    if not one.absent:
        found = means(scored, names, one.name, "ga")
        furthest = max(abs(each - found[0]) for each in found)
        measures = {
            "file's order": Measure.of([found[0]] * len(found)),
            "all orders": Measure.of(found),
            "largest change": Measure.of([furthest] * len(found)),
        }
    return row("order", one, measures)


def shards_row(alike: Alike, n_shards: int, n_systems: int) -> Row:
    """Of how many systems the templates are the same."""
    found = alike[n_shards]
    measures = {
        "systems": Measure.of([float(n_systems)] * len(found)),
        "the same": Measure.of([*map(float, found)]),
    }
    return Row(f"shards_{n_shards}", f"{n_shards} shards", measures, "", "cache", "shards")


def left_out_rows(scored: Scored, names: Sequence[str]) -> Iterator[Row]:
    """GA on one half at the numbers that are best on the other; beside it, all settings."""
    grids = np.array(
        [[numbers(scored, f"grid {each}", name, "ga") for name in names] for each in GRID]
    )  # settings, systems, orders
    default = GRID.index((TAU, FEW, RARE))
    cases = {}
    if len(names) > 1:
        dealt = [left_out(grid) for grid in np.moveaxis(grids, 2, 0)]
        cases["chosen"] = ("Chosen on the other half", [deal.mean() for deal in dealt])
        cases["least"] = (f"The worst of {len(dealt[0])} ways to halve", [*map(min, dealt)])
    cases |= {
        "default": ("The defaults, on all systems", grids[default].mean(axis=0)),
        "worst": ("The worst setting, on all", grids.mean(axis=1).min(axis=0)),
        "best": ("The best setting, on all", grids.mean(axis=1).max(axis=0)),
    }
    for name, (label, found) in cases.items():
        role: Role = "cache" if name == "chosen" else "added"
        setting = "tau, few and rare; all rules kept" if name == "chosen" else ""
        yield Row(name, label, {"GA": Measure.of([*map(float, found)])}, setting, role, "left_out")


def numbers(scored: Scored, contender: str, system: str, of: str) -> list[float]:
    """One measure of a contender on a system, in each order."""
    return [float(getattr(found, of)) for found in scored[contender, system]]


def means(scored: Scored, names: Sequence[str], contender: str, of: str) -> list[float]:
    """The mean over systems of a measure, in each order."""
    found: list[float] = np.mean(
        [numbers(scored, contender, name, of) for name in names], 0
    ).tolist()
    return found
