"""The log parser on real logs: how right, how fast, and how it compares with Drain3.

One setting for all systems. Needs the folder ``loghub_2k`` in ``$DISTINCTKV_DATA``. Run ``python -m
benchmarks.logs`` (minutes), or with ``--quick``: 100,000 mixed lines in place of 1,000,000.
"""

from __future__ import annotations

import argparse
import re
import resource
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from random import Random
from typing import Any

import numpy as np

from distinctkv import Concentration
from distinctkv.streams import LogParser
from distinctkv.streams.parsing.scores import Scores, score

from .common import keep, race, short, stamp, table, timed, verdict
from .loglines import System, drain3, mixed, systems

TAUS, FEWS, RARES = (0.2, 0.25, 0.3, 0.4, 0.5), (2, 3, 4, 5, 6), (2, 5, 10, 20, 50)
PATIENCE = 60.0  # seconds for a rival on the mixed stream
Result = dict[str, Any]


def ours(lines: Iterable[str], tau: float = 0.3, few: int = 4, rare: float = 10) -> LogParser:
    """A parser that has seen these lines."""
    parser = LogParser(Concentration.fixed(tau), few=few, rare=rare)
    parser.add_many(lines)
    return parser


def judge(system: System, parser: LogParser) -> Scores:
    """Scores of a parser that has seen the lines of a system."""
    texts = {row.id: row.template for row in parser.templates()}
    ids = [match.id for line in system.lines if (match := parser.match(line))]
    return score(ids, [texts[number] for number in ids], system.groups, system.texts)


def judge_drain3(system: System, masked: bool) -> Scores:
    """Scores of Drain3; its texts are those of the end, every mask a wildcard."""
    add = drain3(masked)
    answers = [add(line) for line in system.lines]
    texts = {answer["cluster_id"]: answer["template_mined"] for answer in answers}
    ids = [answer["cluster_id"] for answer in answers]
    wild = [re.sub("<[A-Z]+>", "<*>", texts[number]) for number in ids]
    return score(ids, wild, system.groups, system.texts)


def accuracy(found: list[System]) -> Result:
    """All measures, by system and on average, beside Drain3's."""
    rows: dict[str, list[Scores]] = {}
    for system in found:
        theirs = [judge_drain3(system, masked) for masked in (False, True)]
        rows[system.name] = [judge(system, ours(system.lines)), *theirs]
    mean = [Scores(*np.mean(column, axis=0)) for column in zip(*rows.values(), strict=True)]
    head = ["", "GA", "FGA", "PA", "FTA", "found", "true", "Drain3 GA", "FGA", "masked GA", "FGA"]
    table(head, [_line(name, *scores) for name, scores in [*rows.items(), ("average", mean)]])
    verdict(f"GA {mean[0].ga:.4f} >= .975", mean[0].ga >= 0.975)
    verdict(f"FGA {mean[0].fga:.4f} >= .95", mean[0].fga >= 0.95)
    verdict(f"PA {mean[0].pa:.4f} >= .60", mean[0].pa >= 0.60)
    return {name: [one._asdict() for one in scores] for name, scores in rows.items()}


def _line(name: str, mine: Scores, plain: Scores, masked: Scores) -> list[str]:
    figures = [f"{number:.3f}" for number in mine[:4]]
    rivals = [f"{number:.3f}" for rival in (plain, masked) for number in rival[:2]]
    return [name, *figures, f"{mine.found:.0f}", f"{mine.true:.0f}", *rivals]


def _templates(parser: LogParser) -> list[tuple[str, int]]:
    return sorted((row.template, row.count) for row in parser.templates())


def order(found: list[System]) -> Result:
    """Three shuffles, and parsers on shards that are absorbed into one."""
    means = []
    for seed in range(4):
        scores = []
        for system in found:
            places = list(range(len(system.lines)))
            if seed:
                Random(seed).shuffle(places)
            scores.append(judge(system, ours(system.lines[place] for place in places)).ga)
        means.append(float(np.mean(scores)))
    verdict(f"three shuffles: average GA {means[1:]}", max(means) - min(means) <= 0.01)
    same = {}
    for shards in (2, 4, 16):
        parts = 0
        for system in found:
            whole = LogParser()
            for shard in range(shards):
                whole.absorb(ours(system.lines[shard::shards]))
            parts += _templates(whole) == _templates(ours(system.lines))
        same[shards] = parts
        verdict(f"{shards} shards: the templates of one pass in {parts} of {len(found)} systems",
                parts == len(found))  # fmt: skip
    return {"shuffled": means, "same": same}


def left_out(found: list[System]) -> Result:
    """Each system under the numbers that are best on all the others."""
    settings = list(product(TAUS, FEWS, RARES))
    grid = np.array([
        [judge(system, ours(system.lines, tau, few, rare)).ga for system in found]
        for tau, few, rare in settings
    ])  # fmt: skip
    figures, chosen = [], {}
    for column, system in enumerate(found):
        others = np.delete(grid, column, axis=1).mean(axis=1)
        best = int(others.argmax())
        chosen[system.name] = settings[best]
        figures.append(float(grid[best, column]))
    spread = grid.mean(axis=1)
    print(f"  chosen on the others: {sorted(set(chosen.values()))} (tau, few, rare)")
    print(f"  average GA over all {len(settings)} settings: {spread.min():.3f}..{spread.max():.3f}")
    verdict(f"each number chosen on the others, GA {np.mean(figures):.4f} >= .90",
            np.mean(figures) >= 0.90)  # fmt: skip
    return {"ga": dict(zip((one.name for one in found), figures, strict=True)), "chosen": chosen}


def speed(found: list[System]) -> Result:
    """Lines per second of CPU on each system, from an empty start, all lines one by one."""
    results, rows = {}, []
    for system in found:
        runs: dict[str, Callable[[], Any]] = {
            "ours": partial(_each, lambda: LogParser().add, system.lines),
            "Drain3": partial(_each, drain3, system.lines),
            "Drain3, masked": partial(_each, partial(drain3, True), system.lines),
        }
        raced = race(runs, rounds=5)
        rates = {name: len(system.lines) / run.best.cpu for name, run in raced.items()}
        ratios = [rates["ours"] / rates[name] for name in ("Drain3", "Drain3, masked")]
        rows.append([system.name, *map(short, rates.values()), *(f"{one:.1f}x" for one in ratios)])
        results[system.name] = rates
    table(["lines/s", "ours", "Drain3", "masked", "is faster", "than masked"], rows)
    worst = min(one["ours"] / one["Drain3, masked"] for one in results.values())
    verdict(f"at least {worst:.1f}x Drain3 with its example masking, on every system", worst >= 2)
    return results


def _each(make: Callable[[], Callable[[str], Any]], lines: Iterable[str]) -> None:
    add = make()
    for line in lines:
        add(line)


def stream(found: list[System], n_lines: int, torn: bool) -> Result:
    """A long stream of fresh values: ours on all of it, Drain3 for a minute of CPU."""
    lines = [line for system in found for line in system.lines]
    chunks = partial(mixed, lines, n_lines, torn)
    parser = LogParser()
    mine = _run(parser.add, chunks(), float("inf"))
    result = {"ours": mine, "leaves": parser.n_leaves, "templates": len(parser)}
    result["settle"] = timed(parser.templates)[1].cpu
    result["megabytes"] = _megabytes()
    _run(parser.add, mixed(lines, 2 * n_lines, torn, seed=1), float("inf"))
    result["leaves, three times"], result["megabytes, three times"] = parser.n_leaves, _megabytes()
    rivals = {"masked": drain3(True), "masked, 1,024 at most": drain3(True, limit=1024)}
    for name, add in rivals.items():
        result[name] = _run(add, chunks(), PATIENCE)
    rows = [[name, short(run["lines"]), short(run["rate"]), short(run["last"]),
             f"{mine['rate'] / run['rate']:.1f}x"]
            for name, run in result.items() if isinstance(run, dict)]  # fmt: skip
    table(["", "lines", "lines/s", "at the end", "ours is faster"], rows)
    print(f"  {result['leaves']:,} leaves, {result['templates']:,} templates, worked out in "
          f"{result['settle']:.1f} s; {result['megabytes']:.0f} MB at most\n  after three times as "
          f"many lines: {result['leaves, three times']:,} leaves, "
          f"{result['megabytes, three times']:.0f} MB at most")  # fmt: skip
    return result


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _run(add: Callable[[str], Any], chunks: Iterable[list[str]], patience: float) -> Result:
    spent, n_lines, rates = 0.0, 0, []
    for chunk in chunks:
        time = timed(partial(_each, lambda: add, chunk))[1].cpu
        spent, n_lines = spent + time, n_lines + len(chunk)
        rates.append(len(chunk) / time)
        if spent > patience:
            break
    tenth = max(1, len(rates) // 10)
    return {"lines": n_lines, "rate": n_lines / spent, "first": rates[0],
            "last": float(np.mean(rates[-tenth:]))}  # fmt: skip


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="benchmarks.logs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 mixed lines")
    n_lines = 100_000 if parser.parse_args().quick else 1_000_000
    facts = stamp("drain3")
    print("  setting: tau .3, few 4, rare 10; Drain3: its defaults, and its example masking\n")
    found = systems()
    result: Result = {"machine": facts, "accuracy": accuracy(found), "order": order(found)}
    result["left out"] = left_out(found)
    print()
    result["speed"] = speed(found)
    print(f"\n{short(n_lines)} mixed lines with fresh values")
    result["mixed"] = one = stream(found, n_lines, torn=False)
    faster = one["ours"]["rate"] / one["masked"]["rate"]
    verdict(f"{faster:.1f}x Drain3 with its example masking >= 5x", faster >= 5)
    slower = one["ours"]["first"] / one["ours"]["last"]
    verdict(f"from the first 10,000 lines to the last, {slower:.2f}x slower <= 1.5x", slower <= 1.5)
    grown = one["megabytes, three times"] - one["megabytes"]
    verdict(f"from {short(n_lines)} to {short(3 * n_lines)} lines, {grown:.0f} MB more <= 16",
            grown <= 16)  # fmt: skip
    print(f"\n{short(n_lines)} torn lines, in which any word may be fresh (no target)")
    result["torn"] = stream(found, n_lines, torn=True)
    keep("logs", result)


if __name__ == "__main__":
    main()
