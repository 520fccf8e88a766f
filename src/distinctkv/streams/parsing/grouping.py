"""Leaves of one length, and the patterns that gather them into templates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from .cover import Cover
from .leaves import Template
from .lines import Key
from .patterns import patterns
from .words import WILD


class Group(NamedTuple):
    """Keys that share a template, and the patterns by which they do."""

    keys: list[Key]
    patterns: list[Key]


def gather(keys: Collection[Key], opened: Iterable[Key]) -> list[Group]:
    """Keys by the template they share: a pattern that covers two of them links them.

    >>> gather([("a", "x"), ("b", "y"), ("a", "z")], [("a", "<*>")])[0]
    Group(keys=[('a', 'x'), ('a', 'z')], patterns=[('a', '<*>')])
    """
    cover = Cover(opened)
    parent: dict[Key, Key] = {}

    def root(key: Key) -> Key:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = key = parent[above]
        return key

    for key in keys:
        for pattern in cover.all(key):
            parent[root(pattern)] = root(key)
    groups: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    for key in keys:
        groups[root(key)].keys.append(key)
    for pattern in sorted(parent.keys() & set(opened)):
        groups[root(pattern)].patterns.append(pattern)
    return list(groups.values())


def common(keys: Iterable[Key]) -> Key:
    """What keys of one length have in common, with wildcards where they differ.

    >>> common([("a", "b", "c"), ("a", "x", "c")])
    ('a', '<*>', 'c')
    """
    places = zip(*keys, strict=True)
    return tuple(
        first if all(token == first for token in rest) else WILD for first, *rest in places
    )


class Grouping:
    """What was last worked out for the leaves of one length, and when to do so again."""

    def __init__(self, few: int) -> None:
        self.due = self._least = 4 * few  # leaves that may open before the next time
        self.homes: dict[Key, Template] = {}  # by pattern
        self.load: Counter[Key] = Counter()  # leaves by the pattern that `pattern` says
        self._opened, self._seeds = Cover(), Cover()

    def pattern(self, key: Key) -> Key | None:
        """The widest pattern that covers a key, or the narrowest of those given as seeds."""
        if self._seeds and (seeds := self._seeds.all(key)):
            return seeds[-1]
        return self._opened.first(key)

    def work_out(
        self,
        keys: Collection[Key],
        seeds: Iterable[Key],
        tau: float,
        few: int,
        known: Iterable[Key] = (),
    ) -> list[Group]:
        """Groups of keys; those that fit a seed are kept out of the others.

        ``known`` are patterns that were opened by keys which are no longer held.
        """
        self._seeds = Cover(seeds)
        given: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
        free: list[Key] = []
        for key in keys:
            covering = self._seeds.all(key)
            (given[covering[-1]].keys if covering else free).append(key)
        for seed, group in given.items():
            group.patterns.append(seed)
        opened = patterns(free, tau, few).union(known)
        self._opened = Cover(opened)
        self.due = max(self._least, len(keys))
        self.load = Counter(pattern for key in keys if (pattern := self.pattern(key)))
        return [*given.values(), *gather(free, opened)]
