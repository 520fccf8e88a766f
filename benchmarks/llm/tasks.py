"""Contexts to remember and questions about them, all from a seed.

A context is a list of lines of tokens, cut to a length; a question is a cue, the words that come
before an answer, and the answer. Several wordings of each task, drawn with the seed, so that no
method is fitted to one. Nothing here looks at any cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np

from .kit import QUESTIONS, Kit, Task
from .vocabulary import (
    ALARMS,
    EVENTS,
    FACTS,
    KEYED,
    NAMES,
    NEWS,
    NOISE,
    PAIRED,
    TALES,
    TOLD,
    VALUES,
    Wording,
)


def facts(kit: Kit) -> Task:
    """A few facts said again and again, one time in four in other words."""
    n = 16 if kit.length <= 1536 else 24 if kit.length <= 5000 else 32
    wording: Wording = kit.one(FACTS)
    pairs = list(zip(kit.draw(NAMES, n), kit.draw(VALUES, n), strict=True))

    def lines() -> Iterator[str]:
        while True:
            for i in kit.rng.permutation(n):
                name, value = pairs[i]
                form = wording.other if kit.rng.random() < 0.25 else wording.plain
                yield form.format(name=name, value=value)

    return Task(sum(kit.fill(lines()), ()), kit.ask(_cued(wording, pairs)))


def tale(kit: Kit) -> Task:
    """Facts, each said once, in sentences that hardly ever come twice."""

    def sentences() -> Iterator[str]:
        while True:
            words = {slot: kit.one(choices) for slot, choices in TOLD.items()}
            line = str(kit.one(TALES)).format(**words)
            yield line[0].upper() + line[1:]

    return needles_in(kit, sentences())


def logs(kit: Kit) -> Task:
    """Needles in lines of logs drawn from 24."""
    pool = [_event(kit) for _ in range(24)]
    return _needles(kit, kit.one(ALARMS), NAMES, (kit.one(pool) for _ in cycle([0])))


def fresh_logs(kit: Kit) -> Task:
    """Needles in lines of logs that repeat their templates, with new numbers each."""
    return _needles(kit, kit.one(ALARMS), NAMES, (_event(kit) for _ in cycle([0])))


def updates(kit: Kit) -> Task:
    """Facts said three times, then changed; which value is current?"""
    wording: Wording = kit.one(NEWS)
    n = min(max(4, kit.length // 128), len(VALUES) // 2)
    names = kit.draw(NAMES, n)
    old, new = np.array(kit.draw(VALUES, 2 * n)).reshape(2, n).tolist()

    def lines(form: str, values: Sequence[str], times: int) -> list[str]:
        order = np.concatenate([kit.rng.permutation(n) for _ in range(times)])
        return [form.format(name=names[i], value=values[i]) for i in order.tolist()]

    said = lines(wording.plain, old, 3) + lines(wording.other, new, 2)
    ids = sum((kit.tokens(line + "\n") for line in said), ())
    room = kit.length - len(ids)
    before = kit.fill(iter(lines(wording.plain, old, 99)), max(0, room))
    ids = (*sum(before, ()), *ids)[: kit.length] if room >= 0 else ids[-kit.length :]
    return Task(tuple(ids), kit.ask(_cued(wording, list(zip(names, new, strict=True)))))


def code(kit: Kit) -> Task:
    """Functions or classes of the same shape, again and again; each sets one name to one value."""
    pairs = list(zip(kit.draw(NAMES, 12), kit.draw(VALUES, 12), strict=True))
    body: str = kit.one(
        (
            '@register\ndef load(config):\n    """Load one setting."""\n'
            "    if config is None:\n        raise ValueError('config is missing')\n"
            '    config["{name}"] = {value}\n    return config\n',
            "class Setting(Base):\n    required = True\n    deprecated = False\n"
            "    {name} = {value}\n",
        )
    )

    def lines() -> Iterator[str]:
        order = np.arange(len(pairs))
        while True:
            for i in order:
                name, value = pairs[i]
                yield body.format(name=name, value=value)
            order = kit.rng.permutation(order)

    taken = kit.fill(lines())
    start = body.partition(" {value}")[0]
    cues = [(start.format(name=name), value) for name, value in pairs[: len(taken)]]
    return Task(sum(taken, ()), kit.ask(cues, lead=""))


def chat(kit: Kit) -> Task:
    """Turns of a chat in which the same is asked and answered again and again."""
    pairs = list(zip(kit.draw(NAMES, 12), kit.draw(VALUES, 12), strict=True))
    what = kit.one(("favourite thing", "nickname", "gift"))

    def lines() -> Iterator[str]:
        while True:
            for i in kit.rng.permutation(len(pairs)):
                name, value = pairs[i]
                yield (
                    f"User: Hello again! Could you tell me the {what} of {name}, please?\n"
                    f"Assistant: Of course. The {what} of {name} is {value}."
                )

    taken = kit.fill(lines())
    cues = [
        (
            f"User: Hello again! Could you tell me the {what} of {name}, please?\n"
            f"Assistant: Of course. The {what} of {name} is",
            value,
        )
        for name, value in pairs
    ]
    return Task(sum(taken, ()), kit.ask(cues, lead=""))


def agent(kit: Kit) -> Task:
    """Steps of a program that calls tools whose output repeats itself."""
    wording: Wording = kit.one(FACTS)
    pairs = list(zip(kit.draw(NAMES, QUESTIONS), kit.draw(VALUES, QUESTIONS), strict=True))

    def step(form: str, name: str, value: str) -> str:
        return f'> lookup("{name}")\n' + form.format(name=name, value=value)

    def hay() -> Iterator[str]:
        while True:
            yield "> list_files()\nREADME.md setup.py src tests docs Makefile"
            yield '> run_tests()\n{"passed": 12, "failed": 0, "skipped": 1, "seconds": 4.2}'
            yield "> git_status()\nOn branch main. Nothing to commit, working tree clean."

    ids = kit.hide([step(wording.plain, *pair) for pair in pairs], hay())
    return Task(ids, kit.ask([(step(wording.cue, *pair), pair[1]) for pair in pairs], lead=""))


def single(kit: Kit) -> Task:
    """One needle in a noise that repeats itself, as RULER has it."""
    return _keyed(kit, n=1)


def many(kit: Kit) -> Task:
    """A needle for each of many keys, eight of them asked for."""
    return _keyed(kit, n=max(8, kit.length // 64))


def paired(kit: Kit) -> Task:
    """Two values of each of four keys, each asked for."""
    values, names = kit.draw(VALUES, 8), kit.draw(NAMES, 4)
    told = list(zip(names, values[:4], values[4:], strict=True))
    needles = [PAIRED.plain.format(name=n, value=one, second=two) for n, one, two in told]
    ids = kit.hide(needles, cycle([kit.one(NOISE)]))
    firsts = [(PAIRED.cue.format(name=n), one) for n, one, _ in told]
    seconds = [(f"{PAIRED.cue.format(name=n)} {one} and", two) for n, one, two in told]
    return Task(ids, kit.ask(firsts + seconds))


def needles_in(kit: Kit, hay: Iterator[str], n: int = QUESTIONS) -> Task:
    """Facts among the lines of any text."""
    return _needles(kit, kit.one(FACTS), NAMES, hay, n)


def continuation(kit: Kit, text: str, n: int = 256) -> Task:
    """A real text, and how it goes on."""
    ids = kit.tokens(text)
    if len(ids) < kit.length + n:
        raise ValueError(
            f"a text of {len(ids)} tokens was given, {kit.length + n} are needed; give a longer one"
        )
    at = int(kit.rng.integers(0, len(ids) - kit.length - n + 1))
    cut = at + kit.length - 1
    # The last token of the context is the cue: the first prediction follows it.
    return Task(ids[at:cut], ((ids[cut : cut + 1], ids[cut + 1 : cut + 1 + n]),))


def _keyed(kit: Kit, n: int) -> Task:
    return _needles(kit, KEYED, NAMES, cycle([kit.one(NOISE)]), n)


def _needles(
    kit: Kit, wording: Wording, names: Sequence[str], hay: Iterator[str], n: int = QUESTIONS
) -> Task:
    n = min(n, len(names), len(VALUES))
    pairs = list(zip(kit.draw(names, n), kit.draw(VALUES, n), strict=True))
    needles = [_stamp(kit, wording.plain, name=name, value=value) for name, value in pairs]
    return Task(kit.hide(needles, hay), kit.ask(_cued(wording, pairs)))


def _cued(wording: Wording, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(wording.cue.format(name=name), value) for name, value in pairs]


def _event(kit: Kit) -> str:
    a, b, n = kit.rng.integers((1, 1, 1000), (9, 99, 60000)).tolist()
    return _stamp(kit, kit.one(EVENTS), a=a, b=b, n=n)


def _stamp(kit: Kit, form: str, **words: object) -> str:
    hour, minute, second = kit.rng.integers((0, 0, 0), (24, 60, 60)).tolist()
    time = f"Nov 15 {hour:02}:{minute:02}:{second:02}"
    return form.format(time=time, host=f"node{int(kit.rng.integers(1, 9))}", **words)


TASKS: Mapping[str, Callable[[Kit], Task]] = {
    "facts": facts,
    "tale": tale,
    "logs": logs,
    "fresh_logs": fresh_logs,
    "updates": updates,
    "code": code,
    "chat": chat,
    "agent": agent,
    "ruler_single": single,
    "ruler_many": many,
    "ruler_values": paired,
}
