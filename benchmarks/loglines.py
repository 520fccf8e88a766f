"""A stream of log lines without end: the templates are real, every value is fresh."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from random import Random
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from reproduction.data import loghub
from reproduction.data.loghub import Log

CHUNK = 10_000
CONSTANT = 0.05  # part of the lines that are without a value: all logs have some
TAGS = (" user={}", " by {}", " for client {}", " ({})")
Chunks = Iterator[list[tuple[str, str]]]
_name = re.compile(r"[A-Za-z][A-Za-z_.-]{2,}")


class Sentence(NamedTuple):
    """A line of a real log: ``texts[0] values[0] texts[1] ... texts[-1]``, by its true template."""

    event: str
    texts: list[str]
    values: list[str]
    named: bool  # whether a value is a name
    tag: str  # what all lines of this event end with if none is


def systems() -> list[Log]:
    """All systems on this machine."""
    found = [loghub.load(name) for name in loghub.present()]
    if not found:
        raise SystemExit(
            "no system of Loghub is on this machine: run python -m reproduction.data get loghub, "
            "or set DISTINCTKV_DATA to its folder"
        )
    return found


def mixed(logs: Iterable[Log], n_lines: int, seed: int = 0) -> Chunks:
    """Chunks of lines, each with the event it is an occurrence of; hardly a value comes twice.

    Lines are drawn from all systems. Every number in a value is drawn anew, and every value that is
    a name is a fresh word; a line without such a value has one added at its end, as logs have that
    say who asked. So a parser gains little by remembering lines whose digits it has taken out.
    """
    random = Random(seed)

    def fresh(one: Sentence) -> list[str]:
        said = [
            _word(random) if _name.fullmatch(value) else _numbers(random, value)
            for value in one.values
        ]
        return [*said, "" if one.named else one.tag.format(_word(random))]

    return _drawn(random, logs, n_lines, fresh)


def renumbered(logs: Iterable[Log], n_lines: int, seed: int = 0) -> Chunks:
    """The same lines, but names stay what they were and none is added: numbers alone are fresh."""
    random = Random(seed)
    return _drawn(
        random, logs, n_lines, lambda one: [*(_numbers(random, old) for old in one.values), ""]
    )


def torn(logs: Iterable[Log], n_lines: int, seed: int = 0) -> Chunks:
    """A stream that no program writes: half the lines have one word, constant or not, fresh."""
    random = Random(seed)
    for chunk in mixed(logs, n_lines, seed):
        yield [(_tear(random, text) if random.random() < 0.5 else text, one) for text, one in chunk]


def _drawn(
    random: Random, logs: Iterable[Log], n_lines: int, fresh: Callable[[Sentence], list[str]]
) -> Chunks:
    sentences = [one for log in logs for one in _sentences(log)]
    valued = [one for one in sentences if one.values]
    constant = [one for one in sentences if not one.values]

    def line() -> tuple[str, str]:
        if constant and random.random() < CONSTANT:
            one = random.choice(constant)
            return one.texts[0], one.event
        one = random.choice(valued)
        return "".join(map(str.__add__, one.texts, fresh(one))), one.event

    for _ in range(n_lines // CHUNK):
        yield [line() for _ in range(CHUNK)]


def _sentences(log: Log) -> Iterator[Sentence]:
    tags = {event: TAGS[place % len(TAGS)] for place, event in enumerate(sorted({*log.event_ids}))}
    for line, event, template in zip(log.lines, log.event_ids, log.templates, strict=True):
        texts = template.split("<*>")
        found = re.fullmatch("(.*?)".join(map(re.escape, texts)), line, re.DOTALL)
        if found and all(found.groups()):
            values = list(found.groups())
            named = any(map(_name.fullmatch, values))
            yield Sentence(f"{log.system} {event}", texts, values, named, tags[event])


def _word(random: Random) -> str:
    first = random.choice(ascii_lowercase + ascii_uppercase)
    return first + "".join(random.choices(ascii_lowercase, k=random.randint(4, 9)))


def _numbers(random: Random, text: str) -> str:
    return re.sub(r"\d+", lambda found: f"{random.randrange(10 ** len(found[0]))}", text)


def _tear(random: Random, text: str) -> str:
    words = list(re.finditer(r"[A-Za-z]{4,}", text))
    if not words:
        return text
    found = random.choice(words)
    return text[: found.start()] + _word(random) + text[found.end() :]
