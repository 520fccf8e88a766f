"""How fast the log parser is beside Drain3, and how much memory it takes, one thread.

What it finds in real logs is measured by study ``logs`` (``python -m reproduction --only logs``).
Here are the lines of each system of Loghub from an empty start, then a long stream of all systems
with fresh values (``loglines.mixed``). All take turns on it, 10,000 lines at a time, so that a slow
minute of the machine hits them all; one that has had its seconds rests. Run ``python -m
benchmarks.logs`` (ten minutes), or with ``--quick`` (30,000 lines in place of 1,000,000).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from statistics import median
from typing import Any
from unittest.mock import patch

from distinctkv import Concentration
from distinctkv.logs import LogParser
from distinctkv.logs.parser import LineCache
from distinctkv.logs.templates import Variant
from reproduction.data.loghub import Log
from reproduction.studies.log_parsers import (
    DRAIN3_BEST,
    DRAIN3_DEFAULT,
    DRAIN3_MASKED,
    Drain3Setting,
    drain3,
    score,
)

from .common import keep, race, short, stamp, table, timed, verdict
from .loglines import CHUNK, mixed, renumbered, systems, torn
from .memory import resident

LIMIT, BUDGET = 1024, 5000  # clusters of Drain3, variants of ours
RIVALS: Mapping[str, Drain3Setting] = {
    "Drain3": DRAIN3_DEFAULT,
    "Drain3, limited": replace(DRAIN3_DEFAULT, max_clusters=LIMIT),
    "Drain3, masked": DRAIN3_MASKED,
    "Drain3, masked, limited": replace(DRAIN3_MASKED, max_clusters=LIMIT),
}
MASKING = ("Drain3, masked", "Drain3, masked, limited")
PATIENCE = 40.0  # seconds of CPU for a rival on a stream
KNOWN = 5  # chunks by which a stream is described
GROWTH = 16.0  # MB from a tenth of the lines to all of them
Chunks = Iterable[list[tuple[str, str]]]
Add = Callable[[str], Any]
Result = dict[str, Any]


def _each(make: Callable[[], Add], lines: Iterable[str]) -> list[Any]:
    add = make()
    return [add(line) for line in lines]


def speed(logs: Iterable[Log]) -> Result:
    """Lines per second of CPU on each system, from an empty start, all lines one by one."""
    contenders: dict[str, Callable[[], Add]] = {"ours": lambda: LogParser().add}
    settings = {
        "Drain3": DRAIN3_DEFAULT,
        "Drain3, masked": DRAIN3_MASKED,
        "Drain3, at its best": DRAIN3_BEST,
    }
    contenders |= {name: partial(drain3, setting) for name, setting in settings.items()}
    results, rows = {}, []
    for log in logs:
        raced = race(
            {name: partial(_each, make, log.lines) for name, make in contenders.items()}, rounds=5
        )
        rates = {name: len(log.lines) / run.best.cpu for name, run in raced.items()}
        ratios = [f"{rates['ours'] / rates[name]:.1f}x" for name in settings]
        rows.append([log.system, *map(short, rates.values()), *ratios])
        results[log.system] = rates
    table(["lines/s", *contenders, *(f"/{name}" for name in settings)], rows)
    worst = min(one["ours"] / one["Drain3, masked"] for one in results.values())
    verdict(f"{worst:.1f}x Drain3 with its example masking on every system >= 2x", worst >= 2)
    return results


def stream(what: str, make: Callable[[], Chunks], patience: float = PATIENCE) -> Result:
    """A stream: what it is like for each parser, and their speed on it."""
    print(f"\n{what}")
    found = describe(list(islice(make(), KNOWN)))
    contenders = {"ours": LogParser().add} | {
        name: drain3(setting) for name, setting in RIVALS.items()
    }
    times = alternate(contenders, make(), patience)
    rows = []
    for name, spent in times.items():
        n_chunks, tail = len(spent), max(1, len(spent) // 20)
        found[name] |= {
            "lines": CHUNK * n_chunks,
            "rate": CHUNK * n_chunks / sum(spent),
            "at the end": CHUNK / median(spent[-tail:]),
            "ours is faster": sum(spent) / sum(times["ours"][:n_chunks]),
        }
        one = found[name]
        rows.append([name, f"{one['GA']:.3f}", f"{one['FGA']:.3f}", one["groups"],
                     *(short(one[key]) for key in ("lines", "rate", "at the end")),
                     f"{one['ours is faster']:.2f}x"])  # fmt: skip
    table(["", "GA", "FGA", "groups", "lines", "lines/s", "at the end", "ours is faster"], rows)
    print(f"  {found['events']} events; ours knows {found['masked']:.1%} of the lines by their")
    print(f"  masked text (this, GA and groups: at most {KNOWN * CHUNK:,} lines)")
    return found | {"times": times}


def alternate(contenders: Mapping[str, Add], chunks: Chunks, patience: float) -> Result:
    """Seconds of CPU of each contender for each chunk; ours takes all of them."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for chunk in chunks:
        lines = [line for line, _ in chunk]
        for name, add in contenders.items():
            if name == "ours" or sum(times[name]) < patience:
                times[name].append(timed(partial(_each, lambda add=add: add, lines))[1].cpu)
    return times


def describe(chunks: Chunks) -> Result:
    """How well each parser groups a stream, and how many lines ours knows by their masked text."""
    lines, events = zip(*(pair for chunk in chunks for pair in chunk), strict=True)
    known, find = 0, LineCache.find_masked

    def counted(cache: LineCache, text: str, masked: str) -> Variant | None:
        nonlocal known
        found = find(cache, text, masked)
        known += found is not None
        return found

    parser = LogParser()
    with patch.object(LineCache, "find_masked", counted):
        ids = [parser.add(line).id for line in lines]
    groups: dict[str, list[Any]] = {"ours": [parser.resolve(number) for number in ids]}
    for name, setting in RIVALS.items():
        groups[name] = [one["cluster_id"] for one in _each(partial(drain3, setting), lines)]
    found: Result = {"masked": known / len(lines), "events": len(set(events))}
    for name, each in groups.items():
        scores = score(each, events, events, events)
        found[name] = {"GA": scores.ga, "FGA": scores.fga, "groups": scores.found}
    return found


def growth(n_lines: int, budget: int | None) -> list[tuple[int, float, int, int]]:
    """Lines, resident megabytes, variants and templates as a stream passes, in a fresh process."""
    parser = LogParser(Concentration.fixed(0.3, budget) if budget else None)
    found = []
    for done, chunk in enumerate(mixed(systems(), n_lines), start=1):
        for line, _ in chunk:
            parser.add(line)
        if done * CHUNK in (max(CHUNK, n_lines // 10), n_lines // 2, n_lines):
            found.append((done * CHUNK, resident(), parser.n_variants, len(parser)))
    return found


def memory(n_lines: int) -> Result:
    """Whether the memory taken stays what it is, with a budget and without."""
    print("\nmemory of ours on the same stream, in a process of its own")
    cases = {"no budget": None, f"{BUDGET:,} variants": BUDGET}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = {name: pool.submit(growth, n_lines, budget) for name, budget in cases.items()}
        found = {name: job.result() for name, job in jobs.items()}
    table(["", "lines", "MB resident", "variants", "templates"],
          [[name, short(row[0]), f"{row[1]:.0f}", *row[2:]] for name, rows in found.items()
           for row in rows])  # fmt: skip
    for name, rows in found.items():
        more = rows[-1][1] - rows[0][1]
        verdict(f"{name}: from {short(rows[0][0])} to {short(n_lines)} lines {more:+.1f} MB <= "
                f"{GROWTH:g} MB", more <= GROWTH)  # fmt: skip
    return found


def judge(found: Result) -> None:
    """The figures that are asked of the long stream."""
    faster, slower = sorted(MASKING, key=lambda name: found[name]["ours is faster"])
    for name, which in ((faster, "faster"), (slower, "slower")):
        ratio = found[name]["ours is faster"]
        verdict(
            f"{ratio:.2f}x the {which} Drain3 with its example masking ({name}) >= 5x", ratio >= 5
        )
    spent = found["times"]["ours"]
    warm, last = median(spent[1:6]), median(spent[-5:])
    verdict(f"at the end {last / warm:.2f}x as long for a line as after the first 10,000 <= 1.5x",
            last <= 1.5 * warm)  # fmt: skip
    share = found["masked"]
    verdict(f"ours knows {share:.1%} of the lines by their masked text < 10%", share < 0.1)


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="benchmarks.logs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30,000 lines")
    quick = parser.parse_args().quick
    n_lines, n_more = (30_000, 10_000) if quick else (1_000_000, 100_000)
    facts, logs = stamp("drain3"), systems()
    print(f"  ours: its defaults; Drain3: {DRAIN3_DEFAULT}; limited: {LIMIT:,} clusters at most;\n"
          f"  at its best: {DRAIN3_BEST}\n")  # fmt: skip
    result: Result = {"machine": facts, "speed": speed(logs)}
    what = f"{short(n_lines)} lines, numbers and names fresh: memory of lines helps little"
    result["mixed"] = found = stream(what, partial(mixed, logs, n_lines))
    judge(found)
    result["memory"] = memory(n_lines)
    others = {"numbers alone are fresh": renumbered, "any word may be fresh": torn}
    for name, make in others.items():
        what = f"{short(n_more)} lines, {name} (no target)"
        result[name] = stream(what, partial(make, logs, n_more))
    keep("logs", result)


if __name__ == "__main__":
    main()
