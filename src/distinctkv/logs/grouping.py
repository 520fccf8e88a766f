"""Leaves of one length, and the patterns that gather them into templates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from .cover import Cover
from .leaves import Template
from .lines import Key
from .patterns import patterns
from .words import WILD

LATEST = 16  # times the fewest leaves: no more of the latest are looked at


class Group(NamedTuple):
    """Keys that share a template, and the patterns by which they do."""

    keys: list[Key]
    patterns: list[Key]


class Known(NamedTuple):
    """The patterns of one length: those that were given as seeds, and those that keys opened."""

    seeds: Cover
    folded: Cover  # opened by keys that are no longer held
    opened: Cover

    def pattern(self, key: Key) -> Key | None:
        """The widest pattern that covers a key, or the narrowest of those given as seeds."""
        if self.seeds and (seeds := self.seeds.all(key)):
            return seeds[-1]
        return (self.folded and self.folded.first(key)) or self.opened.first(key)

    def under(self, pattern: Key, keys: Iterable[Key]) -> list[Key]:
        """The keys that a pattern covers; a seed, before all others, those it is narrowest for."""
        cover = Cover([pattern])
        found = [key for key in keys if cover.first(key)]
        if self.seeds:
            seed = [pattern] if pattern in self.seeds else []
            found = [key for key in found if self.seeds.all(key)[-1:] == seed]
        return found


def gather(
    keys: Collection[Key], opened: Collection[Key], links: Mapping[Key, Iterable[Key]] | None = None
) -> list[Group]:
    """Keys by the template they share: a pattern that covers two of them links them.

    ``links`` are patterns that covered what a key stands for, and may not cover the key.

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
        for pattern in (*cover.all(key), *(links or {}).get(key, ())):
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


def work_out(
    keys: Collection[Key],
    seeds: Iterable[Key],
    tau: float,
    few: int,
    links: Mapping[Key, Iterable[Key]] | None = None,
) -> tuple[Known, list[Group]]:
    """The patterns of keys of one length, and their groups; what fits a seed is kept out of others.

    Keys with ``links`` stand for keys that are no longer held, and which opened those patterns.
    """
    known = Cover(seeds)
    given: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    free: list[Key] = []
    for key in keys:
        covering = known.all(key)
        (given[covering[-1]].keys if covering else free).append(key)
    for seed, group in given.items():
        group.patterns.append(seed)
    links = {key: links[key] for key in free if key in links} if links else {}
    opened = patterns(free, tau, few).union(*links.values())
    return Known(known, Cover(links), Cover(opened)), [
        *given.values(),
        *gather(free, opened, links),
    ]


class Grouping:
    """What was worked out for the leaves of one length, and when to do so again.

    Templates are made by the patterns in ``shown``, which are worked out anew whenever someone asks
    for templates. Values are given up by those in ``fixed``, which change with the lines alone, so
    that to ask changes no leaf that comes later; only ids may become one sooner.
    """

    def __init__(self, few: int) -> None:
        self.due = self._least = 4 * few  # leaves that may open before all is worked out again
        self.shown = self.fixed = Known(Cover(), Cover(), Cover())
        self.age = 0  # how often what is fixed has changed
        self.homes: dict[Key, Template] = {}  # by pattern that is shown
        self.load: Counter[Key] = Counter()  # leaves by the pattern that is fixed
        self.latest: list[Key] = []  # keys since then that no pattern covers

    def fix(self, keys: Collection[Key]) -> None:
        """Go on with what is shown for these keys."""
        self.fixed, self.latest = self.shown, []
        self.age += 1
        self.due = max(self._least, len(keys))
        self.load = Counter(pattern for key in keys if (pattern := self.fixed.pattern(key)))

    def patterns(self) -> Iterator[Key]:
        """All patterns, fixed and shown."""
        return chain(*self.fixed, *self.shown)

    def look(self, key: Key) -> list[Key]:
        """One more key that no pattern covers; if it is time to, the latest to look at together.

        Of every 16 (four times ``few``) the 16, of every 64 the 64, and so on.
        """
        self.latest.append(key)
        rounds, rest = divmod(len(self.latest), self._least)
        if rest:
            return []
        size = 1
        while size < LATEST and rounds % (4 * size) == 0:
            size *= 4
        return self.latest[-size * self._least :]

    def state(self) -> list[Any]:
        """What a snapshot keeps; the seeds are known from their leaves."""
        fixed, shown = (
            [[*patterns] for patterns in known[1:]] for known in (self.fixed, self.shown)
        )
        heirs = ((pattern, home.heir()) for pattern, home in self.homes.items())
        homes = [[pattern, heir.id] for pattern, heir in heirs if heir.leaves]
        counts = [*self.load.items()]
        return [self.due, *fixed, counts, self.latest, fixed != shown and shown, homes]

    def restore(
        self, state: list[Any], seeds: list[Key], length: int, held: Mapping[int, Template]
    ) -> None:
        """Go on from a snapshot."""
        due, folded, opened, load, latest, shown, homes = state
        read = partial(_key, length=length)

        def known(folded: list[Any], opened: list[Any]) -> Known:
            return Known(Cover(seeds), Cover(map(read, folded)), Cover(map(read, opened)))

        self.fixed = self.shown = known(folded, opened)
        if shown:
            self.shown = known(*shown)
        self.homes = {read(pattern): held[number] for pattern, number in homes}
        if any(len(home.key) != length for home in self.homes.values()):
            raise ValueError(f"a pattern of {length} words is of a template of another length")
        self.load = Counter({read(key): int(count) for key, count in load})
        self.due, self.latest = int(due), [*map(read, latest)]

    def open(self, patterns: Iterable[Key], template: Template) -> None:
        """Know patterns of this template from now on."""
        self.age += 1
        for pattern in patterns:
            self.homes[pattern] = template
            self.fixed.opened.add(pattern)
            self.shown.opened.add(pattern)


def _key(words: list[str], length: int) -> Key:
    if len(words) != length:
        raise ValueError(f"a pattern for keys of {length} words has {len(words)}")
    return tuple(map(str, words))
