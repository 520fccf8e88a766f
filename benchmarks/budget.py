"""Finite budgets and keys that move: our engines against the rule run token by token.

The rule is slow, so it sees the part of the stream that fills the budget and some tokens more; the
rest of its time is that of those last tokens, which all cost the same. Run
``python -m benchmarks.budget`` (minutes), or with ``--quick``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration, Merge, Rule
from distinctkv.engines import EngineName
from distinctkv.rule import unit

from .common import (
    Ints,
    Race,
    Rows,
    Stream,
    Timing,
    draw,
    keep,
    race,
    short,
    stamp,
    table,
    timed,
    verdict,
    write,
)

WIDTH, N_ITEMS, TAU = 64, 10_000, 0.5
BUDGETS = (32, 256, 2048)
STEADY = {32: 8000, 256: 3000, 2048: 400}  # tokens the rule goes on for when the budget is full,
PARTS = 4  # timed in as many parts, of which the quickest counts
LONGEST = 20_000  # tokens that the rule sees at most
LEAST, HELD_TO = 10.0, (32, 256)  # times the rule's speed, at these budgets


@dataclass(frozen=True)
class Case:
    """A policy to time."""

    name: str
    budget: int
    concentration: Concentration
    merge: Merge


def cases() -> list[Case]:
    """Fixed budgets, budgets that heat up to twice the base, and keys that move."""
    found = []
    for budget in BUDGETS:
        fixed = Concentration.fixed(TAU, budget)
        surprise = Concentration.surprise(TAU, budget, budget)
        found.append(Case("fixed", budget, fixed, Merge()))
        found.append(Case("surprise", budget, surprise, Merge()))
        if budget in HELD_TO:
            found.append(Case("fixed, mean key", budget, fixed, Merge(key="mean")))
            found.append(Case("fixed, ema key", budget, fixed, Merge(key="ema")))
    return found


def main() -> None:
    """Time every case, print a table, say which figures were reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.budget", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a stream of 20k tokens")
    n_tokens = 20_000 if parser.parse_args().quick else 100_000
    facts = stamp()
    print(f"\nD {WIDTH}, K {short(N_ITEMS)}, N {short(n_tokens)}, tau {TAU}", flush=True)
    stream = draw(n_tokens, N_ITEMS, WIDTH)
    rows = []
    for case in cases():
        rows.append(measure(case, stream))
        keep("budget", {"machine": facts, "N": n_tokens, "cases": rows})
        print(f"  {case.name} {case.budget}: {rows[-1]['ratio']:.1f}x the rule", flush=True)
    report(rows)


def measure(case: Case, stream: Stream) -> dict[str, Any]:
    """One case: every engine on the whole stream, the rule on its beginning."""
    n_tokens = len(stream)
    names: list[EngineName] = ["compiled", "sequential"] if find_spec("numba") else ["sequential"]
    for name in names:  # imports and compilation are not timed
        run(case, name, stream.rows[:2000])
    raced = race({name: partial(run, case, name, stream.rows) for name in names})
    law, time = rule(case, stream.rows)
    ids, held = raced[names[0]].result
    engines = {name: raced[name].rate(n_tokens) for name in names}
    return {
        **{"name": case.name, "budget": case.budget, "slots": held},
        "evictions_per_1000": 1000 * (int(ids.max()) + 1 - held) / n_tokens,
        "engines": engines,
        "rule": time.rate(n_tokens) | {"tokens": len(law)},
        "ratio": min(time.wall / raced[names[0]].best.wall, time.cpu / raced[names[0]].best.cpu),
        "differ": sum(int((raced[name].result[0][: len(law)] != law).sum()) for name in names)
        + sum(int((raced[name].result[0] != ids).sum()) for name in names),
    }


def run(case: Case, engine: EngineName, rows: Rows) -> tuple[Ints, int]:
    """Slot ids by an engine, and the slots held in the end."""
    cache = Cache(case.concentration, merge=case.merge, engine=engine)
    return write(cache, rows), len(cache)


def rule(case: Case, rows: Rows) -> tuple[Ints, Timing]:
    """Slot ids by the rule until it is full and steady, and the time it would take over all."""
    memory = Rule(case.concentration, case.merge)
    ready = unit(rows[:LONGEST]).astype(np.float32)  # as the cache stores them
    ids: list[int] = []

    def fill() -> None:
        while len(memory.slots) + 1 <= memory.budget and len(ids) < LONGEST - STEADY[case.budget]:
            ids.append(memory.write(ready[len(ids)]))

    def go_on(n_tokens: int) -> None:
        for key in ready[len(ids) : len(ids) + n_tokens]:
            ids.append(memory.write(key))

    _, filling = timed(fill)
    left, part = len(rows) - len(ids), STEADY[case.budget] // PARTS
    steady = Race(None, [timed(partial(go_on, part))[1] for _ in range(PARTS)]).best
    rest = steady.scaled(left / part)
    return np.array(ids), Timing(filling.wall + rest.wall, filling.cpu + rest.cpu)


def report(rows: list[dict[str, Any]]) -> None:
    """Print the table, and which figures were reached."""
    names = list(rows[0]["engines"])
    head = ["policy", "budget", "slots", "evictions/1000", *names, "rule", "on", "/rule", "differ"]
    lines = []
    for row in rows:
        speeds = [short(row["engines"][name]["tokens_per_s"]) for name in names]
        sizes = [str(row["budget"]), str(row["slots"]), f"{row['evictions_per_1000']:.0f}"]
        law = [short(row["rule"]["tokens_per_s"]), short(row["rule"]["tokens"])]
        lines.append([row["name"], *sizes, *speeds, *law, f"{row['ratio']:.1f}", row["differ"]])
    print("\ntokens/s by the wall clock")
    table(head, lines)
    print(
        "on: tokens the rule was run on, the rest of its time is extrapolated. /rule: of the first "
        "engine, the lower\nof wall and CPU time. differ: tokens with another slot than the rule's "
        "or the other engine's.\n"
    )
    for row in rows:
        if row["budget"] in HELD_TO and "key" not in row["name"]:
            what = f"at least {LEAST:g}x the rule, {row['name']}, budget {row['budget']}"
            verdict(f"{what}: {row['ratio']:.1f}", row["ratio"] >= LEAST)
    verdict("the same ids everywhere", not any(row["differ"] for row in rows))


if __name__ == "__main__":
    main()
