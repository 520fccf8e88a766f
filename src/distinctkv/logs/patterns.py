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

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import reduce
from itertools import combinations, pairwise
from operator import eq, itemgetter, ne, xor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tokenizer import TOLD, WILD, Key

# Which patterns cover a key.


class _Table(NamedTuple):
    """Patterns with constants at the same places, by their constants."""

    size: int  # constants
    get: Callable[[Key], object]
    patterns: dict[object, Key]


class Cover:
    """Patterns of one length.

    >>> cover = Cover([("a", "<*>", "c"), ("a", "b", "<*>"), ("a", "<*>", "<*>")])
    >>> cover.all(("a", "x", "c"))
    [('a', '<*>', '<*>'), ('a', '<*>', 'c')]
    """

    def __init__(self, patterns: Iterable[Key] = ()) -> None:
        self._by_first: defaultdict[str, list[_Table]] = defaultdict(list)
        self._tables: dict[tuple[str, tuple[int, ...]], _Table] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Key) -> None:
        """Know one more pattern."""
        places = tuple(place for place, token in enumerate(pattern) if token != WILD)
        first = pattern[0] if pattern else WILD
        table = self._tables.get((first, places))
        if table is None:
            get = itemgetter(*places) if places else len
            table = self._tables[first, places] = _Table(len(places), get, {})
            insort(self._by_first[first], table, key=itemgetter(0))
        table.patterns[table.get(pattern)] = pattern

    def __iter__(self) -> Iterator[Key]:
        """All patterns."""
        return (one for table in self._tables.values() for one in table.patterns.values())

    def all(self, key: Key) -> list[Key]:
        """The patterns that cover a key: by more holes, then by text."""
        found = [
            (table.size, pattern)
            for row in self._rows(key)
            for table in row
            if (pattern := table.patterns.get(table.get(key)))
        ]
        if len(found) > 1:
            found.sort()
        return [pattern for _, pattern in found]

    def first(self, key: Key) -> Key | None:
        """The first of all patterns that cover a key."""
        found: tuple[int, Key] | None = None
        for row in self._rows(key):
            for size, get, patterns in row:
                if found is not None and size > found[0]:
                    break
                pattern = patterns.get(get(key))
                if pattern is not None and (found is None or (size, pattern) < found):
                    found = size, pattern
        return None if found is None else found[1]

    def _rows(self, key: Key) -> tuple[list[_Table], list[_Table]]:
        """Tables in which a key may be: by its first token, and by none."""
        first = key[0] if key else WILD
        far = [] if first == WILD else self._by_first.get(WILD, [])
        return self._by_first.get(first, []), far

    def __bool__(self) -> bool:
        return bool(self._tables)


# Pairs of keys that differ in a few tokens, and what each pair has in common.

CROWD = 256  # keys compared with each other at most: the first by their text

Tokens = NDArray[np.int64]


def in_common(keys: Collection[Key], tau: float, few: int = 1) -> set[Key]:
    """What is common to pairs that differ in two tokens or more, wildcards in place of the rest.

    They differ in no more than a part ``tau`` of their constants, and ``few`` pairs have the same
    in common, unless one has a wildcard where the other has none. Cut into one block more than
    there may be differences, such a pair agrees in some block; only those are compared.

    >>> keys = [tuple("abcdefg"), tuple("xbydefg")]
    >>> in_common(keys, tau=0.3)
    {('<*>', 'b', '<*>', 'd', 'e', 'f', 'g')}
    """
    length = max(map(len, keys), default=0)
    most = int(tau * length)
    found: set[Key] = set()
    if most < 2:
        return found
    ordered = sorted(keys)
    for start, stop in pairwise(length * block // (most + 1) for block in range(most + 2)):
        blocks: defaultdict[Key, list[Key]] = defaultdict(list)
        for key in ordered:
            blocks[key[start:stop]].append(key)
        for crowd in blocks.values():
            if len(crowd) > 1:
                compare = _compare if len(crowd) <= 8 else _compare_many
                found |= compare(crowd[:CROWD], tau, few)
    return found


def _compare(keys: list[Key], tau: float, few: int) -> set[Key]:
    """What pairs have in common, one by one: arrays are slow to set up."""
    pairs: Counter[Key] = Counter()
    for one, two in combinations(keys, 2):
        differ: int = sum(map(ne, one, two))
        if 1 < differ <= tau * len(one):
            shared = tuple(a if a == b else WILD for a, b in zip(one, two, strict=True))
            if differ <= tau * (len(one) - shared.count(WILD) + differ):
                wild = one.count(WILD) + two.count(WILD) > 2 * (shared.count(WILD) - differ)
                pairs[shared] += few if wild else 1
    return {shared for shared, count in pairs.items() if count >= few}


def _compare_many(keys: list[Key], tau: float, few: int) -> set[Key]:
    numbers: dict[str, int] = {WILD: 0}
    tokens = np.array([[numbers.setdefault(token, len(numbers)) for token in key] for key in keys])
    wild = tokens == 0
    both = wild.astype(np.int64) @ wild.T  # (K, K) places where both are wild
    differ = (tokens[:, None] != tokens).sum(axis=2)
    constants = tokens.shape[1] - both
    one, two = np.nonzero(np.triu((differ > 1) & (differ <= tau * constants)))
    if len(one) == 0:
        return set()
    shared = np.where(tokens[one] == tokens[two], tokens[one], 0)  # (P, L)
    n_wild = wild.sum(axis=1)
    weight = np.where(n_wild[one] + n_wild[two] > 2 * both[one, two], few, 1)
    names = list(numbers)
    rows = _often(shared, weight, few)
    return {tuple(names[number] for number in row) for row in rows.tolist()}


def _often(rows: Tokens, weight: Tokens, few: int) -> Tokens:
    """Distinct rows of enough weight, by a hash: the sum of random numbers for place and token."""
    random = np.random.default_rng(0)
    hashes = random.integers(1 << 62, size=(rows.shape[1], int(rows.max()) + 1))
    total = hashes[np.arange(rows.shape[1]), rows].sum(axis=1)
    _, first, same = np.unique(total, return_index=True, return_inverse=True)
    return rows[first[np.bincount(same, weight) >= few]]


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
