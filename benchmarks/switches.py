"""The rules of the log parser, made so that each can be turned off."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from math import inf
from typing import Any, NamedTuple
from unittest.mock import patch

from distinctkv import Concentration
from distinctkv.logs import LogParser, patterns, templates, tokenizer
from distinctkv.logs.tokenizer import Key
from reproduction.data.loghub import Log
from reproduction.studies.log_parsers import FEW, RARE, TAU, score

NEVER = re.compile(r"(?!)()()")


def _uncut(word: str) -> tokenizer.Word:
    token = tokenizer.WILD if any(map(str.isdigit, word)) else word
    return tokenizer.Word((token,), (token,), (word,), ("", ""), token)


def _none(*_: object) -> set[tokenizer.Word]:
    return set()


def _never_rare(
    counts: Mapping[Key, int], _: float, max_extra: int, kept: Collection[Key]
) -> dict[Key, Key]:
    return patterns.find_subsumed(counts, inf, max_extra, kept)


CUT = "cut words at marks"
# Every switch, by what turns it off: the module, the name in it, and the value without it.
OFF: dict[str, list[tuple[Any, str, Any]]] = {
    CUT: [(tokenizer, "tokenize", _uncut)],
    "runs of dots": [(tokenizer, "_dots", NEVER)],
    "empty brackets": [(tokenizer, "_empty", NEVER)],
    "a number after a name and a dot": [(tokenizer, "_numbered", NEVER)],
    "names called or assigned to": [
        (tokenizer, "_named", {}),
        (tokenizer, "_digits", re.compile(r"\d+")),
        (tokenizer, "_leading", NEVER),
    ],
    "names by their dots and slashes": [(tokenizer, "_is_dotted_name", _none)],
    "dates": [(tokenizer, "_date", NEVER)],
    "units": [(tokenizer, "_UNITS", frozenset())],
    "quoted text": [(tokenizer, "_quoted", NEVER)],
    "user agents": [(tokenizer, "_agent", NEVER)],
    "dumps": [(tokenizer, "_dump", NEVER)],
    "users": [(tokenizer, "_user", NEVER)],
    "values side by side are one": [
        (tokenizer, "_key", tuple),
        (patterns, "_merge_adjacent_wildcards", lambda _: {}),
    ],
    "one word may change": [(patterns, "_with_one_wildcard", _none)],
    "several words may change": [(patterns, "_with_several", _none)],
    "more on more evidence": [(patterns, "MORE", float("inf"))],
    "rare longer templates": [(templates, "find_subsumed", _never_rare)],
}
SHAPES = tuple(tokenizer._VALUES)[2:]  # what a value looks like: a switch each

MARKS = tuple(OFF)[:5]
PATHS = ("names by their dots and slashes", *(one for one in SHAPES if "path" in one))
ADDRESSES = tuple(one for one in SHAPES if one not in PATHS and "assigned" not in one)
TEXTS = ("quoted text", "user agents", "dumps", *(one for one in SHAPES if "assigned" in one))
_EITHER = {
    "words are cut at marks": MARKS,
    "who follows 'for user' is a value": ("users",),
    "values side by side are one": ("values side by side are one",),
    "words that take many values are values": tuple(
        name for name in OFF if name.endswith(("may change", "more evidence"))
    ),
    "a value may be longer in rare lines": ("rare longer templates",),
}
_KINDS = {
    "addresses": ADDRESSES,
    "paths and dotted names": PATHS,
    "dates": ("dates",),
    "units": ("units",),
    "text in quotes and brackets": TEXTS,
}
# What counts as one rule, from coarse to fine: its name, and the switches that are turned with it.
GRAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "as one would state it": {
        **_EITHER,
        "what looks like a value is one": tuple(one for kind in _KINDS.values() for one in kind),
    },
    "a kind of value": {**_EITHER, **_KINDS},
    "a switch in the code": {name: (name,) for name in (*OFF, *SHAPES)},
}


class Choice(NamedTuple):
    """Switches that are on, and the numbers: tau, few and rare."""

    on: frozenset[str] = frozenset()
    numbers: tuple[float, int, float] = (TAU, FEW, RARE)


def parse(log: Log, choice: Choice) -> tuple[float, float]:
    """GA and FGA of a system under a choice."""
    with ExitStack() as changes:
        for name in OFF.keys() - choice.on:
            for module, attribute, value in OFF[name]:
                changes.enter_context(patch.object(module, attribute, value))
        shapes = {
            name: shape
            for name, shape in tokenizer._VALUES.items()
            if name not in SHAPES or name in choice.on
        }
        changes.enter_context(patch.object(tokenizer, "_VALUES", shapes))
        tau, few, rare = choice.numbers
        parser = LogParser(
            Concentration.fixed(tau), min_distinct_values=few + 1, subsume_ratio=rare
        )
        ids = parser.add_many(log.lines).tolist()
        parser.templates()
    now = {number: parser.resolve(number) for number in set(ids)}
    found = score([now[number] for number in ids], log.templates, log.event_ids, log.templates)
    return found.ga, found.fga
