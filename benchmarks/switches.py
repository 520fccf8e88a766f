"""The rules of the log parser, made so that each can be turned off."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

from distinctkv import Concentration
from distinctkv.logs import LogParser, patterns, tokenizer
from reproduction.data.loghub import Log
from reproduction.studies.log_parsers import FEW, TAU, score

NEVER = re.compile(r"(?!)()()")


def _has_value(word: str, after: str, *, first: bool) -> bool:
    return tokenizer.VALUE in word


def _nothing(*_: object) -> list[object]:
    return []


def _never(*_: object) -> bool:
    return False


CUT = "cut words at marks"
PATHS, NUMBERS = "paths", "a number with all that is joined to it"
# Every other switch, by what turns it off: the owner of a name, the name, the value without it.
OFF: dict[str, list[tuple[Any, str, Any]]] = {
    "quoted text": [(tokenizer, "_quoted", NEVER), (tokenizer, "_quoted_value", NEVER)],
    "brackets with structure": [(tokenizer, "_bracket", NEVER)],
    "fields of a message": [(tokenizer, "_message", NEVER), (tokenizer, "_opening", NEVER)],
    "units": [(tokenizer, "_UNITS", frozenset())],
    "None and the like": [(tokenizer, "_NOTHING", frozenset())],
    "names by their dots and slashes": [(tokenizer, "_is_value", _has_value)],
    "users": [(tokenizer, "_user", NEVER)],
    "one word may change": [(patterns.Evidence, "_count_words", _nothing)],
    "two words may change": [(patterns.Evidence, "_count_pairs", _nothing)],
    "any text may follow a colon": [(patterns.Evidence, "_count_text", _nothing)],
    "fewer words after a colon": [(patterns, "BEFORE_VALUES", frozenset())],
    "fewer words in capitals": [(patterns, "_in_text", _never)],
    "fewer values of a field": [(patterns, "_is_field", _never)],
    "fewer words after an arrow": [(patterns, "_follows_arrow", _never)],
    "fewer names of several parts": [(patterns, "MIN_EQUAL", patterns.MAX_TOKENS)],
}
BASIC = ("kind", "word", "blanks", "mark")  # of what a masked line consists of in any case
FAST = ("plain", "number", "sign")  # found first for speed; others find the same
SHAPES = tuple(kind for kind in tokenizer.SCANNED if kind not in (*BASIC, *FAST))
SWITCHES = (CUT, PATHS, NUMBERS, *OFF, *SHAPES)

_EVIDENCE = tuple(
    name for name in OFF if name.startswith("fewer") or "may change" in name or "colon" in name
)
_TEXTS = ("quoted text", "brackets with structure", "call", "tag", "open")
_NAMES = (PATHS, "names by their dots and slashes", "windows", "stem", "None and the like")
_ADDRESSES = ("url", "address", "mail", "host", "dump", "base64", "list")
_EITHER = {
    "words are cut at marks": (CUT,),
    "who follows 'for user' is a value": ("users",),
    "words that take many values are values": _EVIDENCE,
    "the field of the message says what happened": ("fields of a message",),
    "the class of an exception names an event, its text does not": ("error",),
}
_KINDS = {
    "addresses": _ADDRESSES,
    "paths and dotted names": _NAMES,
    "numbers and dates": (NUMBERS, "date"),
    "units": ("units",),
    "text in quotes and brackets": _TEXTS,
}
# What counts as one rule, from coarse to fine: its name, and the switches that are turned with it.
GRAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "as one would state it": {
        **_EITHER,
        "what looks like a value is one": tuple(one for kind in _KINDS.values() for one in kind),
    },
    "a kind of value": {**_EITHER, **_KINDS},
    "a switch in the code": {name: (name,) for name in SWITCHES},
}


class Choice(NamedTuple):
    """Switches that are on, and the numbers: tau and few."""

    on: frozenset[str] = frozenset()
    numbers: tuple[float, int] = (TAU, FEW)


def changes(on: frozenset[str]) -> list[tuple[Any, str, Any]]:
    """What to replace so that only these switches are on."""
    found = [change for name in OFF.keys() - on for change in OFF[name]]
    always = (*BASIC, *FAST) if CUT in on else BASIC
    kinds = {kind: one for kind, one in tokenizer.SCANNED.items() if kind in on or kind in always}
    if CUT not in on:
        kinds["word"] = r"\S+"
    path = tokenizer.PATH if PATHS in on else "(?!)"
    whole = (tokenizer.NUMBER, tokenizer.HEX) if NUMBERS in on else ("", "(?!)")
    number = tokenizer.numbers(path, *whole)
    return [*found, (tokenizer, "_scan", tokenizer.scanner(kinds)), (tokenizer, "_number", number)]


def parse(log: Log, choice: Choice) -> tuple[float, float]:
    """GA and FGA of a system under a choice."""
    with ExitStack() as stack:
        for owner, name, value in changes(choice.on):
            stack.enter_context(patch.object(owner, name, value))
        tau, few = choice.numbers
        parser = LogParser(Concentration.fixed(tau), min_distinct_values=few + 1)
        ids = parser.add_many(log.lines).tolist()
    found = score(ids, log.templates, log.event_ids, log.templates)
    return found.ga, found.fga
