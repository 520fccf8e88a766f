"""What the rules of the log parser are worth on systems they were not chosen for.

The parser's rules were written with all systems in view. Here they are chosen again by machine, on
six systems at a time, by the sum of GA and FGA on the six: forward, from the bare rule (equal
words, and a word with a digit is a value), and backward, from all rules. A rule that matters to one
system is lost whenever that one is left out, however plain it is (a month is a value); so a third
way also keeps what backward selection keeps on the made-up programs of the tests, which have
nothing to do with the systems. The numbers are chosen on the six. The choice is frozen and measured
on the other six. This measures the choice of the rules, not the writing of them. Run ``python -m
benchmarks.leaving`` (about ten minutes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cache
from itertools import product
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from distinctkv import Concentration
from distinctkv.streams import LogParser
from distinctkv.streams.parsing import lines, patterns, templates, words
from distinctkv.streams.parsing.scores import score
from tests.streams.programs import log, programs

from .common import keep, stamp, table, verdict
from .loglines import System, systems

SEEDS = range(12)  # each deals the systems into six and six
NUMBERS = list(product((0.2, 0.3, 0.4), (3, 4, 5), (5, 10, 20)))  # tau, few, rare
NEVER = re.compile(r"(?!)()()")
Result = dict[str, Any]


def _uncut(word: str) -> words.Word:
    token = words.WILD if any(map(str.isdigit, word)) else word
    return words.Word((token,), (token,), (word,), ("", ""), token)


def _none(*_: object) -> set[words.Word]:
    return set()


CUT = "cut words at marks"
# Every rule, by what turns it off: the module, the name in it, and the value without the rule.
OFF: dict[str, list[tuple[Any, str, Any]]] = {
    CUT: [(lines, "cut", _uncut)],
    "names by their dots and slashes": [(words, "_looks_named", _none)],
    "names called or assigned to": [
        (words, "_named", {}),
        (lines, "_digits", re.compile(r"\d+")),
        (lines, "_leading", NEVER),
    ],
    "a number after a name and a dot": [(words, "_numbered", NEVER)],
    "runs of dots": [(words, "_dots", NEVER)],
    "empty brackets": [(words, "_empty", NEVER)],
    "users": [(lines, "_user", NEVER)],
    "quoted text": [(lines, "_quoted", NEVER)],
    "user agents": [(lines, "_agent", NEVER)],
    "dates": [(lines, "_date", NEVER)],
    "dumps": [(lines, "_dump", NEVER)],
    "units": [(lines, "_UNITS", frozenset())],
    "values side by side are one": [(lines, "_fold", tuple)],
    "one word may change": [(patterns, "_single", _none)],
    "several words may change": [(patterns, "_several", _none)],
    "more on more evidence": [(patterns, "MORE", float("inf"))],
    "rare longer templates": [(templates, "subsumed", lambda *_: {})],
}
SHAPES = list(words._VALUES)[2:]
RULES = (*OFF, *SHAPES)


class Choice(NamedTuple):
    """Rules that are on, and the numbers."""

    rules: frozenset[str] = frozenset()
    numbers: tuple[float, int, float] = (0.3, 4, 10)


def parse(system: System, choice: Choice) -> tuple[float, float]:
    """GA and FGA of a system under a choice."""
    with ExitStack() as changes:
        for name in OFF.keys() - choice.rules:
            for module, attribute, value in OFF[name]:
                changes.enter_context(patch.object(module, attribute, value))
        off = set(SHAPES) - choice.rules
        shapes = {name: shape for name, shape in words._VALUES.items() if name not in off}
        changes.enter_context(patch.object(words, "_VALUES", shapes))
        tau, few, rare = choice.numbers
        parser = LogParser(Concentration.fixed(tau), few=few, rare=rare)
        ids = parser.add_many(system.lines).tolist()
        parser.templates()
    now = {number: parser.resolve(number) for number in set(ids)}
    found = score([now[number] for number in ids], system.groups, system.groups, system.groups)
    return found.ga, found.fga


Measure = Callable[[Iterable[str], Choice], tuple[float, float]]
Choose = Callable[[list[str]], Choice]
WAYS = {
    "forward": "forward selection on six",
    "backward": "backward selection on six",
    "both": "what six systems or the made-up programs need, backward",
}


def forward(measure: Measure, names: list[str]) -> Choice:
    """Begin with the bare rule; add the best rule, alone or with the cut that most rules need."""
    best = Choice()
    while True:
        more = [Choice(best.rules | {rule, *cut}) for rule in RULES for cut in ((), (CUT,))]
        found = max(more, key=lambda choice: sum(measure(names, choice)))
        if sum(measure(names, found)) <= sum(measure(names, best)):
            return best
        best = found


def backward(measure: Measure, names: list[str]) -> Choice:
    """Begin with all rules; drop the least useful for as long as nothing is lost."""
    best = Choice(frozenset(RULES))
    while best.rules:
        fewer = [Choice(best.rules - {rule}) for rule in RULES if rule in best.rules]
        found = max(fewer, key=lambda choice: sum(measure(names, choice)))
        if sum(measure(names, found)) < sum(measure(names, best)):
            break
        best = found
    return best


def tuned(measure: Measure, names: list[str], choice: Choice) -> Choice:
    """The choice with the numbers that are best on these systems."""
    numbers = [choice._replace(numbers=one) for one in NUMBERS]
    return max(numbers, key=lambda choice: sum(measure(names, choice)))


def ablation(measure: Measure, names: list[str]) -> dict[str, tuple[float, float]]:
    """How GA and FGA fall, on average, without each rule in turn."""
    whole = Choice(frozenset(RULES))
    full = measure(names, whole)
    falls = {}
    for rule in RULES:
        ga, fga = measure(names, Choice(whole.rules - {rule}))
        falls[rule] = full[0] - ga, full[1] - fga
    return falls


def split(measure: Measure, names: list[str], choose: Choose) -> list[Result]:
    """Choose on six and measure on the other six, for every seed."""
    splits = []
    for seed in SEEDS:
        fitted = sorted(Random(seed).sample(names, len(names) // 2))
        others = [name for name in names if name not in fitted]
        choice = tuned(measure, fitted, choose(fitted))
        worst = min(others, key=lambda name: measure([name], choice)[0])
        splits.append({
            "seed": seed, "fitted": fitted, "rules": sorted(choice.rules),
            "numbers": choice.numbers, "on six": measure(fitted, choice),
            "on others": measure(others, choice), "worst": (worst, measure([worst], choice)[0]),
        })  # fmt: skip
    return splits


def show(name: str, splits: list[Result]) -> float:
    """Print the splits; the average GA on the systems that were left out."""
    print(f"\n{name}")
    rows = []
    for one in splits:
        scores = (*one["on six"], *one["on others"], one["worst"][1])
        rows.append([one["seed"], len(one["rules"]), "/".join(map(str, one["numbers"])),
                     *(f"{score:.3f}" for score in scores), one["worst"][0]])  # fmt: skip
    table(["seed", "rules", "tau/few/rare", "six GA", "FGA", "others GA", "FGA", "worst", ""], rows)
    held = np.array([one["on others"] for one in splits])
    mean, spread, worst = held.mean(axis=0), held.std(axis=0, ddof=1), held.min(axis=0)
    print(f"  left out: GA {mean[0]:.3f} (sd {spread[0]:.3f}, worst split {worst[0]:.3f}), "
          f"FGA {mean[1]:.3f} (sd {spread[1]:.3f}, worst {worst[1]:.3f})")  # fmt: skip
    return float(mean[0])


def made_up() -> list[System]:
    """Logs of programs that were made up, for the tests, from what logs look like in general."""
    return [System(name, *log(templates, seed=0), []) for name, templates in programs().items()]


def main() -> None:
    """Choose, measure and print."""
    facts = stamp()
    names = sorted(system.name for system in systems())
    found = {system.name: system for system in (*systems(), *made_up())}
    ours = [name for name in found if name not in names]

    @cache
    def one(name: str, choice: Choice) -> tuple[float, float]:
        return parse(found[name], choice)

    def measure(some: Iterable[str], choice: Choice) -> tuple[float, float]:
        ga, fga = np.mean([one(name, choice) for name in some], axis=0)
        return float(ga), float(fga)

    elsewhere = backward(measure, ours)
    choices = {
        "the bare rule": Choice(),
        "rules chosen on made-up programs alone": elsewhere,
        "all rules": Choice(frozenset(RULES)),
    }
    for name, choice in choices.items():
        print("  {}: GA {:.3f}, FGA {:.3f}".format(name, *measure(names, choice)))
    ways: dict[str, Choose] = {
        "forward": lambda fitted: forward(measure, fitted),
        "backward": lambda fitted: backward(measure, fitted),
        "both": lambda fitted: Choice(backward(measure, fitted).rules | elsewhere.rules),
    }
    result: Result = {"machine": facts, "falls": ablation(measure, names)}
    result |= {way: split(measure, names, choose) for way, choose in ways.items()}
    means = [show(WAYS[way], result[way]) for way in ways]
    print()
    table(["rule", "GA lost without it", "FGA lost", "programs", *ways],
          [[rule, *(f"{fall:.4f}" for fall in falls), "x" * (rule in elsewhere.rules),
            *(sum(rule in one["rules"] for one in result[way]) for way in ways)]
           for rule, falls in result["falls"].items()])  # fmt: skip
    for way, mean in zip(ways, means, strict=True):
        verdict(f"{WAYS[way]}: average GA {mean:.3f} on systems left out >= .90", mean >= 0.90)
    keep("leaving", result)


if __name__ == "__main__":
    main()
