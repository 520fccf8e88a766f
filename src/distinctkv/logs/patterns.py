"""Where keys differ in parameters: a pure function of the set of keys.

A *hole* is a place where otherwise equal keys differ. It is a parameter when it takes more than
``few`` values, or when one of the values already is a wildcard; with fewer it is constant text,
unless it varies freely of two other holes with few values, and twice ``few`` keys show it: a
program that prints three switches does not have eight messages. Two holes vary *freely* if two
values of one and two of the other come in all four combinations.

Keys may differ in no more than a part ``tau`` of their constants: that is the novelty of one to
the other (paper, eq. 1, with matched tokens for the cosine). If every hole takes twice as many
values or varies freely of another they may differ twice as much, and short keys in one word. The
words of a message that a field names (see `messages`) may differ no more than if they stood alone;
what more than ``few`` other values opened, as names in brackets, they do not close.

A *pattern* is a key with parameters. More keys open more patterns, so that keys which share a
template go on sharing it. There are three limits to that, all for patterns with several holes: of
keys that have a block of words in common no more than ``CROWD`` are compared, the first by their
text, so that other keys may crowd out those that opened a pattern and close it; keys longer than
``LONGEST`` open patterns with one hole only; and one of three switches may turn out to take more
than ``few`` values, so that the other two are text again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from itertools import combinations
from operator import eq, xor

from .cover import Cover
from .lines import Key
from .pairs import in_common
from .words import TOLD, WILD

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
        constants = _told(pattern) if _is_told(taken, few) else len(pattern) - pattern.count(WILD)
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
    candidates = in_common(keys, _most(tau), few)
    covered: dict[Key, list[Key]] = {one: [] for one in candidates}
    cover = Cover(candidates)
    for key in keys:
        for pattern in cover.all(key):
            covered[pattern].append(key)
    return {pattern for pattern in candidates if _is_open(covered[pattern], tau, few)}


def _is_open(keys: list[Key], tau: float, few: int) -> bool:
    columns = list(zip(*keys, strict=True))
    values = [set(column) for column in columns]
    holes = [place for place, taken in enumerate(values) if len(taken) > 1]
    narrow = [place for place in holes if not _is_parameter(values[place], few)]
    many = len(keys) >= MORE * few
    if not all(many and _is_free(place, narrow, columns, 2) for place in narrow):
        return False
    near = len(holes) <= tau * sum(taken != {WILD} for taken in values)
    if told := sum(_is_told(values[place], few) for place in holes):
        whole = sum(_told(taken) > 0 for taken in values)
        near = near and told <= tau * whole
        if told > _most(tau) * whole:
            return False
    return near or all(
        len(values[place]) > MORE * few or _is_free(place, holes, columns, 1) for place in holes
    )


def _told(tokens: Iterable[str]) -> int:
    """Words of a message among these tokens."""
    return sum(token[:1] == TOLD for token in tokens)


def _is_told(values: set[str], few: int) -> bool:
    """Whether a hole is one of words of a message, and not of more than a few others as well."""
    told = _told(values)
    return told > 0 and len(values) - told - (WILD in values) <= few


def _most(tau: float) -> float:
    """The part of their constants in which keys may differ at most."""
    return min(MORE * tau, (1 + tau) / 2)


def _is_free(place: int, others: list[int], columns: list[Key], wanted: int) -> bool:
    """Whether a place varies freely of so many others: two values each, in all combinations."""
    found = 0
    for other in others:
        if other != place and found < wanted:
            beside: defaultdict[str, set[str]] = defaultdict(set)
            for value, neighbour in zip(columns[place], columns[other], strict=True):
                beside[value].add(neighbour)
            found += any(len(one & two) > 1 for one, two in combinations(beside.values(), 2))
    return found == wanted


def _is_parameter(values: set[str], few: int) -> bool:
    return len(values) > few or (len(values) > 1 and WILD in values)
