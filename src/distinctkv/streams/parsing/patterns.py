"""Where keys differ in parameters: a pure function of the set of keys.

A *hole* is a place where otherwise equal keys differ. It is a parameter when it takes more than
``few`` values, or when one of the values already is a wildcard; with fewer it is constant text.
Keys may differ in no more than a part ``tau`` of their constants: that is the novelty of one to
the other (paper, eq. 1, with matched tokens for the cosine). If every hole takes twice as many
values they may differ twice as much, and short keys in one word.

A *pattern* is a key with parameters. More keys open more patterns, so that keys which share a
template go on sharing it. There are two limits to that, both for patterns with several holes: of
keys that have a block of words in common no more than ``CROWD`` are compared, the first by their
text, so that other keys may crowd out those that opened a pattern and close it; and keys longer
than ``LONGEST`` open patterns with one hole only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import reduce
from operator import eq, xor

from .cover import Cover
from .lines import Key
from .pairs import in_common
from .words import WILD

LONGEST = 128  # tokens: in longer keys only one hole is sought
MORE = 2  # times tau, if every hole takes so many times the values


def novelty(key: Key, template: Key) -> float:
    """Part of the template's constants that a key of the same length does not match.

    >>> novelty(("session", "closed", "for", "root"), ("session", "opened", "for", "<*>"))
    0.3333333333333333
    """
    constants = len(template) - template.count(WILD)
    shared: int = sum(map(eq, key, template))
    if constants < len(template) and WILD in key:
        shared -= sum(a == b == WILD for a, b in zip(key, template, strict=True))
    return (constants - shared) / constants if constants else 0.0


def patterns(keys: Collection[Key], tau: float, few: int) -> set[Key]:
    """All patterns that keys of one length open.

    >>> names = "ann", "bob", "cas", "dee", "eve"
    >>> keys = [("user", name, "logged", verb) for name in names for verb in ("in", "out")]
    >>> sorted(patterns(keys, tau=0.3, few=4))
    [('user', '<*>', 'logged', 'in'), ('user', '<*>', 'logged', 'out')]
    """
    if tau == 0:
        return set()
    compared = {key for key in keys if len(key) <= LONGEST}
    return _single(set(keys), tau, few) | _several(compared, tau, few)


def _single(keys: set[Key], tau: float, few: int) -> set[Key]:
    """Patterns with one new hole."""
    values: dict[tuple[Key, int], set[str]] = defaultdict(set)
    for key, place in _alike_but_one(keys):
        values[(*key[:place], WILD, *key[place + 1 :]), place].add(key[place])
    opened = set()
    for (pattern, _), taken in values.items():
        constants = len(pattern) - pattern.count(WILD)
        near = tau * (constants + 1) >= 1
        if (near or constants) and _is_parameter(taken, few if near else MORE * few):
            opened.add(pattern)
    return opened


def _alike_but_one(keys: set[Key]) -> Iterator[tuple[Key, int]]:
    """Keys that equal another but for this place, and a few more that only hash alike.

    The hash of a key is the exclusive or over its tokens, so leaving one out costs one step. One
    place at a time, so that long keys need no more memory than short ones.
    """
    totals = [(key, reduce(xor, map(hash, enumerate(key)), 0)) for key in keys]
    for place in range(max(map(len, keys), default=0)):
        alike: dict[int, list[Key]] = defaultdict(list)
        for key, total in totals:
            alike[total ^ hash((place, key[place]))].append(key)
        for group in alike.values():
            if len(group) > 1:
                yield from ((key, place) for key in group)


def _several(keys: set[Key], tau: float, few: int) -> set[Key]:
    """Patterns with several new holes, in which some pair of keys differs."""
    candidates = in_common(keys, min(MORE * tau, (1 + tau) / 2), few)
    values: dict[Key, list[set[str]]] = {one: [set() for _ in one] for one in candidates}
    cover = Cover(candidates)
    for key in keys:
        for pattern in cover.all(key):
            for taken, token in zip(values[pattern], key, strict=True):
                taken.add(token)
    return {pattern for pattern in candidates if _is_open(values[pattern], tau, few)}


def _is_open(values: list[set[str]], tau: float, few: int) -> bool:
    holes = [taken for taken in values if len(taken) > 1]
    constants = sum(taken != {WILD} for taken in values)
    if len(holes) <= tau * constants:
        return all(_is_parameter(taken, few) for taken in holes)
    return all(len(taken) > MORE * few for taken in holes)


def _is_parameter(values: set[str], few: int) -> bool:
    return len(values) > few or (len(values) > 1 and WILD in values)
