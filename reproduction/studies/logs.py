"""The rule as a log parser: Loghub, one setting for all systems, beside Drain3 and the bare rule.

A seed is an order of the lines. The first is that of the files, the others are shuffles, so the
spread shows how much a parser depends on the order. The paper (section "Real-data validation
across four domains") has one number for logs: HDFS, grouping accuracy .89 with 15 templates. It
names no similarity and no threshold; of those in ``log_parsers`` one gives both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import combinations, product
from math import comb
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

from ..data import loghub
from ..data.loghub import Log
from ..result import Measure, Result, Row, Setting
from . import Progress, log_parsers
from .findings import paragraphs
from .log_parsers import (
    FEW,
    INSTALL_DRAIN3,
    PAPER_TAU,
    PARSERS,
    SIMILARITIES,
    TAU,
    Parse,
    Scores,
    score,
    shards_agree,
)
from .runner import FULL, Scale, finish, mark_unmeasured, missing_data, silent, sources
from .sweep import Method

TITLE = "The rule as a log parser"
QUESTION = (
    "A log line is an occurrence of a template. Does the rule find the templates, with one setting "
    "for every system and in whatever order the lines come?"
)
MIN_ORDERS = 5  # of a quick run: that of the file, and four shuffles
MEASURES = {"GA": "ga", "FGA": "fga", "PA": "pa", "FTA": "fta", "found": "found", "true": "true"}
# The bare rule: its similarities, and thresholds at which no line lies on the border.
RULES = {
    "numbers_alike": "Equal words, digits alike",
    "in_place": "Equal words",
    "bags": "Bags of words",
}
TAUS = (0.3, 0.45, 0.55, 0.62, PAPER_TAU, 0.76)
PAPER_LOGS = ("HDFS", "BGL")  # the logs that the paper names
# The parser's numbers (tau and few), and in how many orders all of them are tried.
GRID = tuple(product((0.2, TAU, 0.5), (2, 3, FEW, 5, 6)))
GRID_ORDERS = 2
SHARDS = (2, 4, 16)
MAX_SPLITS = 20_000  # all splits of up to 16 systems; a random part of those of more
HEADINGS = {
    "average": "The mean over systems, one setting for all; a seed is an order of the lines",
    "ga": "GA by system",
    "systems": "LogParser by system",
    "bare": "The bare rule by threshold, on the two logs that the paper names",
    "order": "GA, the mean over systems: what the order of the lines changes",
    "shards": "Systems in which parsers on shards, absorbed, have the templates of one pass",
    "left_out": f"The parser's numbers, of {len(GRID)} settings, chosen on half of the systems and "
    "measured on the other half",
}
Scored = Mapping[tuple[str, str], Sequence[Scores]]  # by parser and system, in each order
Agreeing = Mapping[int, Sequence[int]]  # systems whose shards agree, by number of shards, per order


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "data": sources("loghub"),
        "drain3": version("drain3") if log_parsers.has_drain3() else "missing",
        "parsers": "; ".join(f"{parser.label}: {parser.setting}" for parser in PARSERS),
        "tau_of_the_bare_rule": ", ".join(map(str, TAUS)),
        "settings_to_choose_from": len(GRID),
        "part_of_the_seeds": f"{scale.part}, at least {MIN_ORDERS} seeds",
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every parser on every system that is here, in several orders."""
    started = perf_counter()
    if missing_data("loghub"):
        return mark_unmeasured("logs", settings(scale), seeds, ["loghub"])
    names = loghub.present()
    used = seeds[: max(min(MIN_ORDERS, len(seeds)), scale.of(len(seeds)))]
    scored: dict[tuple[str, str], list[Scores]] = {}
    agreeing = {n_shards: [0] * len(used[:GRID_ORDERS]) for n_shards in SHARDS}
    for done, system in enumerate(names, start=1):
        log = loghub.load(system)
        for parser, found in evaluate_all(log, used, whole=scale.part == 1):
            scored.setdefault((parser, system), []).append(found)
        for place, order in enumerate(orders(len(log), used[:GRID_ORDERS])):
            lines = [log.lines[number] for number in order]
            for n_shards in SHARDS:
                agreeing[n_shards][place] += shards_agree(lines, n_shards)
        progress(done, len(names))
    missing = missing_data(*(f"loghub/{system}" for system in PAPER_LOGS))
    rows = tables(scored, agreeing, names)
    result = Result(
        study="logs",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("logs", rows, **extras(rows, names)),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        headings=HEADINGS,
        missing=missing,
    )
    return finish(result, perf_counter() - started)


def extras(rows: Sequence[Row], names: Sequence[str]) -> Mapping[str, float | None]:
    """What the findings name beside the rows; with one system there are no halves."""
    held_out = {row.name: row.measures["GA"].mean for row in rows if row.table == "left_out"}
    return {
        "n_systems": len(names),
        "n_settings": len(GRID),
        "chosen": held_out.get("chosen"),
        "least": held_out.get("least"),
    }


# Scores


def evaluate_all(log: Log, seeds: Sequence[int], whole: bool) -> Iterator[tuple[str, Scores]]:
    """Scores of all parsers on a system, by name, in each order of the lines.

    The settings of `GRID` are for a full run.
    """
    for place, order in enumerate(orders(len(log), seeds)):
        for parser in PARSERS:
            if not missing_package(parser):
                yield parser.name, evaluate(log, order, parser.make)
        if log.system in PAPER_LOGS:
            for rule, tau in product(RULES, TAUS):
                yield rule_name(rule, tau), evaluate_groups(log, order, SIMILARITIES[rule], tau)
        if whole and place < GRID_ORDERS:
            for numbers in GRID:
                yield f"grid {numbers}", evaluate_groups(log, order, parser_groups, *numbers)


def missing_package(parser: Method) -> str:
    """The package that a parser needs and that is not installed, or nothing."""
    return "drain3" if parser.name.startswith("drain3") and not log_parsers.has_drain3() else ""


def parser_groups(lines: Sequence[str], tau: float, few: int) -> Sequence[Hashable]:
    """The groups of our parser, without template texts."""
    return log_parsers.parse(lines, tau, few)[0]


def evaluate(log: Log, order: Sequence[int], parse: Callable[[Sequence[str]], Parse]) -> Scores:
    """All measures of a parser on the lines of a system, in this order."""
    groups, texts = parse([log.lines[place] for place in order])
    true = ([column[place] for place in order] for column in (log.event_ids, log.templates))
    return score(groups, texts, *true)


def evaluate_groups(
    log: Log, order: Sequence[int], group: Callable[..., Sequence[Hashable]], *numbers: float
) -> Scores:
    """The same without template texts, so that PA and FTA mean nothing."""
    events, blank = [log.event_ids[place] for place in order], [""] * len(order)
    groups = group([log.lines[place] for place in order], *numbers)
    return score(groups, blank, events, blank)


def orders(n_lines: int, seeds: Sequence[int]) -> list[list[int]]:
    """An order of the lines for each seed: that of the file for the first, else a shuffle.

    >>> orders(3, [7])
    [[0, 1, 2]]
    """
    shuffles = [np.random.default_rng(seed).permutation(n_lines).tolist() for seed in seeds[1:]]
    return [[*range(n_lines)], *shuffles]


# Tables; rows of a parser or a log that is not on this machine have no measures


def rule_name(rule: str, tau: float) -> str:
    """The name of the bare rule at a threshold.

    >>> rule_name("bags", 0.55)
    'bags_55'
    """
    return f"{rule}_{100 * tau:.0f}"


def tables(scored: Scored, agreeing: Agreeing, names: Sequence[str]) -> tuple[Row, ...]:
    """All rows."""
    return (
        *(average_row(scored, names, parser) for parser in PARSERS),
        *(ga_row(scored, names, parser) for parser in PARSERS),
        *(system_row(scored, name) for name in names),
        *(rule_row(scored, rule, tau) for rule, tau in product(RULES, TAUS)),
        *(order_row(scored, names, parser) for parser in PARSERS),
        *(shards_row(agreeing, n_shards, len(names)) for n_shards in SHARDS),
        *(two_fold_rows(scored, names) if (f"grid {GRID[0]}", names[0]) in scored else ()),
    )


def parser_row(
    table: str, parser: Method, found: Mapping[str, Sequence[float]], setting: str = ""
) -> Row:
    """The row of a parser; one that is not installed says how to get it."""
    package = missing_package(parser)
    measures = {name: Measure.of(numbers) for name, numbers in found.items()}
    setting = f"to measure it, {INSTALL_DRAIN3}" if package else setting
    return Row(parser.name, parser.label, measures, setting, parser.role, table, package)


def average_row(scored: Scored, names: Sequence[str], parser: Method) -> Row:
    """The mean over systems of every measure."""
    found = {
        name: means(scored, names, parser.name, measure)
        for name, measure in MEASURES.items()
        if not missing_package(parser)
    }
    return parser_row("average", parser, found, parser.setting)


def ga_row(scored: Scored, names: Sequence[str], parser: Method) -> Row:
    """GA on each system."""
    found = {
        name: values(scored, parser.name, name, "ga")
        for name in names
        if not missing_package(parser)
    }
    return parser_row("ga", parser, found)


def order_row(scored: Scored, names: Sequence[str], parser: Method) -> Row:
    """GA in the file's order, over all orders, and the largest change by a shuffle."""
    if missing_package(parser):
        return parser_row("order", parser, {})
    found = means(scored, names, parser.name, "ga")
    change = max(abs(one - found[0]) for one in found)
    measures = {
        "file's order": [found[0]] * len(found),
        "all orders": found,
        "largest change": [change] * len(found),
    }
    return parser_row("order", parser, measures)


def system_row(scored: Scored, name: str) -> Row:
    """Every measure of our parser on a system."""
    measures = {
        label: Measure.of(values(scored, "ours", name, measure))
        for label, measure in MEASURES.items()
    }
    return Row(name, name, measures, "", "cache", "systems")


def rule_row(scored: Scored, rule: str, tau: float) -> Row:
    """GA and templates of the bare rule on the logs that the paper names."""
    missing = missing_data(*(f"loghub/{system}" for system in PAPER_LOGS))
    found = {
        f"{system} {label}": values(scored, rule_name(rule, tau), system, MEASURES[label])
        for system, label in product(PAPER_LOGS, ("GA", "found"))
        if not missing
    }
    if not missing:
        parsers = [values(scored, one.name, "BGL", "ga") for one in PARSERS if has_ga(scored, one)]
        found["BGL behind"] = [*np.subtract(np.max(parsers, axis=0), found["BGL GA"])]
    method = Method(
        rule_name(rule, tau),
        f"{RULES[rule]}, tau {tau}",
        f"tau {tau}",
        SIMILARITIES[rule],
        role="paper" if (rule, tau) == ("numbers_alike", PAPER_TAU) else "added",
    )
    return method.row(found, "bare", missing=", ".join(missing))


def has_ga(scored: Scored, parser: Method) -> bool:
    """Whether a parser with templates was run on BGL; the bare rule is no such parser."""
    return (parser.name, "BGL") in scored and not parser.name.startswith("bare")


def shards_row(agreeing: Agreeing, n_shards: int, n_systems: int) -> Row:
    """In how many systems the templates are the same."""
    found = agreeing[n_shards]
    measures = {
        "systems": Measure.of([float(n_systems)] * len(found)),
        "the same": Measure.of([*map(float, found)]),
    }
    return Row(f"shards_{n_shards}", f"{n_shards} shards", measures, "", "cache", "shards")


def two_fold_rows(scored: Scored, names: Sequence[str]) -> Iterator[Row]:
    """GA on one half at the numbers that are best on the other; beside it, all settings."""
    grids = np.array(
        [[values(scored, f"grid {numbers}", name, "ga") for name in names] for numbers in GRID]
    )  # settings, systems, orders
    default = GRID.index((TAU, FEW))
    found = {}
    if len(names) > 1:
        held_out = [two_fold_check(grid) for grid in np.moveaxis(grids, 2, 0)]
        found["chosen"] = ("Chosen on the other half", [one.mean() for one in held_out])
        found["least"] = (f"The worst of {len(held_out[0])} ways to halve", [*map(min, held_out)])
    found |= {
        "default": ("The defaults, on all systems", grids[default].mean(axis=0)),
        "worst": ("The worst setting, on all", grids.mean(axis=1).min(axis=0)),
        "best": ("The best setting, on all", grids.mean(axis=1).max(axis=0)),
    }
    for name, (label, scores) in found.items():
        chosen = name == "chosen"
        yield Row(
            name,
            label,
            {"GA": Measure.of([*map(float, scores)])},
            "tau and few; all rules kept" if chosen else "",
            "cache" if chosen else "added",
            "left_out",
        )


def values(scored: Scored, parser: str, system: str, measure: str) -> list[float]:
    """One measure of a parser on a system, in each order."""
    return [float(getattr(scores, measure)) for scores in scored[parser, system]]


def means(scored: Scored, names: Sequence[str], parser: str, measure: str) -> list[float]:
    """The mean over systems of a measure, in each order."""
    found = [values(scored, parser, name, measure) for name in names]
    mean: list[float] = np.mean(found, axis=0).tolist()
    return mean


# The two-fold check: a choice made on half of the systems, measured on the other half


def two_fold_splits(n_systems: int) -> NDArray[np.bool_]:
    """Ways to split systems, (splits, systems): true in the half on which one chooses.

    Of an odd number the smaller half.

    >>> two_fold_splits(4)[:2].astype(int)
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]])
    """
    half = n_systems // 2
    if comb(n_systems, half) > MAX_SPLITS:
        shuffles = np.random.default_rng(0).random((MAX_SPLITS, n_systems)).argsort(axis=1)
        return np.asarray(shuffles < half)
    halves = np.array([*combinations(range(n_systems), half)], dtype=np.int64)
    return np.asarray((halves[:, :, None] == np.arange(n_systems)).any(axis=1))


def two_fold_check(grid: Floats) -> Floats:
    """For each split, the mean on one half of what is best on the other; (settings, systems) in.

    >>> two_fold_check(np.array([[0.9, 0.2], [0.8, 1.0]])).tolist()
    [0.2, 0.8]
    """
    chosen_on = two_fold_splits(grid.shape[1])
    # Rounded, so that the first of equal settings is taken.
    best = (grid @ chosen_on.T).round(9).argmax(axis=0)
    others = grid @ ~chosen_on.T / (~chosen_on).sum(axis=1)
    return np.asarray(others[best, np.arange(len(chosen_on))])
