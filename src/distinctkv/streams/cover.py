"""Which patterns cover a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple, Self

from .lines import Key
from .words import WILD


class _Mask(NamedTuple):
    """A pattern with its constants at hand."""

    size: int
    pattern: Key
    get: Callable[[Key], object]
    constants: object

    @classmethod
    def of(cls, pattern: Key) -> Self:
        places = [place for place, token in enumerate(pattern) if token != WILD]
        get: Callable[[Key], object] = itemgetter(*places) if places else len
        return cls(len(places), pattern, get, get(pattern))


class Cover:
    """Patterns of one length.

    >>> cover = Cover([("a", "<*>", "c"), ("a", "b", "<*>"), ("a", "<*>", "<*>")])
    >>> cover.all(("a", "x", "c"))
    [('a', '<*>', '<*>'), ('a', '<*>', 'c')]
    """

    def __init__(self, patterns: Iterable[Key] = ()) -> None:
        self._by_first: defaultdict[str, list[_Mask]] = defaultdict(list)
        for mask in sorted(map(_Mask.of, set(patterns)), key=itemgetter(0, 1)):
            self._by_first["".join(mask.pattern[:1])].append(mask)

    def all(self, key: Key) -> list[Key]:
        """The patterns that cover a key: by more holes, then by text."""
        first = "".join(key[:1])
        near = self._by_first.get(first, ())
        masks = [mask for mask in near if mask.get(key) == mask.constants]
        if first != WILD and (far := self._by_first.get(WILD)):
            masks += [mask for mask in far if mask.get(key) == mask.constants]
            masks.sort(key=itemgetter(0, 1))
        return [mask.pattern for mask in masks]

    def first(self, key: Key) -> Key | None:
        """The first of all patterns that cover a key."""
        found = None
        for token in {*key[:1], WILD}:
            for mask in self._by_first.get(token, ()):
                if mask.get(key) == mask.constants:
                    if found is None or mask[:2] < found[:2]:
                        found = mask
                    break
        return None if found is None else found.pattern

    def __bool__(self) -> bool:
        return bool(self._by_first)
