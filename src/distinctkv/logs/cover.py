"""Which patterns cover a key."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

from .lines import Key
from .words import WILD


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
