"""Which patterns cover a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
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
        tables: dict[tuple[str, tuple[int, ...]], _Table] = {}
        for pattern in patterns:
            places = tuple(place for place, token in enumerate(pattern) if token != WILD)
            first = pattern[0] if pattern else WILD
            if (first, places) not in tables:
                get = itemgetter(*places) if places else len
                table = tables[first, places] = _Table(len(places), get, {})
                self._by_first[first].append(table)
            table = tables[first, places]
            table.patterns[table.get(pattern)] = pattern
        for row in self._by_first.values():
            row.sort(key=itemgetter(0))

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
        return bool(self._by_first)
