"""The log parsers of study ``logs``: lines in; the group and the template of each line out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from distinctkv.logs import LogParser
from distinctkv.policy import Concentration

from ..data.loghub import Log
from ..result import Role
from . import drain, wordwise
from .scores import Scores, score

Parse = tuple[Sequence[Hashable], Sequence[str]]
TAU, FEW, RARE = 0.3, 4, 10.0  # the parser's defaults
BEST, PAPER = 0.3, 0.69  # tau of the bare rule: a good one, and that of the paper's numbers
DRAINS = (
    ("drain3", "Drain3", drain.PLAIN),
    ("drain3_masked", "Drain3, masked", drain.MASKED),
    ("drain3_best", "Drain3, at its best", drain.BEST),
)


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser in the race; ``absent`` names what it wants for on this machine."""

    name: str
    label: str
    setting: str
    parse: Callable[[Sequence[str]], Parse]
    role: Role = "added"
    absent: str = ""


def ours(lines: Sequence[str], tau: float = TAU, few: int = FEW, rare: float = RARE) -> Parse:
    """The parser of this package.

    >>> ours(["open a1", "open b2", "shut"])
    ([0, 0, 1], ['open <*>', 'open <*>', 'shut'])
    """
    parser = LogParser(Concentration.fixed(tau), few=few, rare=rare)
    ids = parser.add_many(lines).tolist()
    texts: dict[int | None, str] = {row.id: row.template for row in parser.templates()}
    now = {number: parser.resolve(number) for number in set(ids)}
    groups = [now[number] for number in ids]
    return groups, [texts[group] for group in groups]


def grouped(lines: Sequence[str], tau: float, few: int, rare: float) -> Sequence[Hashable]:
    """Its groups alone, at these numbers."""
    return ours(lines, tau, few, rare)[0]


def shards_agree(lines: Sequence[str], n_shards: int) -> bool:
    """Whether parsers on shards, absorbed into one, have the templates of one pass.

    >>> shards_agree(["open a1", "open b2", "shut"], 2)
    True
    """
    whole, parts = LogParser(), LogParser()
    whole.add_many(lines)
    for shard in range(n_shards):
        one = LogParser()
        one.add_many(lines[shard::n_shards])
        parts.absorb(one)
    found = ([(row.template, row.count) for row in one.templates()] for one in (whole, parts))
    return sorted(next(found)) == sorted(next(found))


def words_in_place(lines: Sequence[str], tau: float) -> Parse:
    """The bare rule, with all words that have a digit taken for one."""
    groups = wordwise.numbers_alike(lines, tau)
    return groups, wordwise.texts([wordwise.masked(line) for line in lines], groups)


def contenders() -> tuple[Parser, ...]:
    """All of them; Drain3 is an optional dependency."""
    return (
        Parser("ours", "LogParser (ours)", f"tau {TAU}, few {FEW}, rare {RARE:g}", ours, "cache"),
        *(_drain3(*one) for one in DRAINS),
        *(
            Parser(
                f"bare_{100 * tau:.0f}",
                f"Bare rule, tau {tau}",
                "words in place, digits alike",
                partial(words_in_place, tau=tau),
                "paper" if tau == PAPER else "added",
            )
            for tau in (BEST, PAPER)
        ),
    )


def _drain3(name: str, label: str, setting: drain.Setting) -> Parser:
    parse = partial(drain.parse, setting=setting)
    return Parser(name, label, str(setting), parse, absent="" if drain.present() else "drain3")


def judge(log: Log, order: Sequence[int], parse: Callable[[Sequence[str]], Parse]) -> Scores:
    """All measures of a parser on the lines of a system, in this order."""
    groups, texts = parse([log.lines[place] for place in order])
    true = ([column[place] for place in order] for column in (log.event_ids, log.templates))
    return score(groups, texts, *true)


def grouping(
    log: Log, order: Sequence[int], group: Callable[..., Sequence[Hashable]], *numbers: float
) -> Scores:
    """The same without template texts, so that of the measures PA and FTA mean nothing."""
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
