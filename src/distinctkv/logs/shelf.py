"""Where a parser keeps its leaves: by key, by length, and by what a new one may be near to."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

from .leaves import Leaf
from .lines import Key
from .patterns import novelty

NEAR = 32  # keys among which the novelty of a new one is sought


class Shelf:
    """Leaves by key, in the order in which they came."""

    def __init__(self) -> None:
        self.leaves: dict[Key, Leaf] = {}
        self.lengths: defaultdict[int, dict[Key, Leaf]] = defaultdict(dict)
        self.tokens: set[str] = set()  # of all keys, and of some that are gone
        self.n_seeds = 0
        self._near: defaultdict[tuple[int, str], dict[Key, None]] = defaultdict(dict)

    def put(self, leaf: Leaf) -> None:
        """Keep one more leaf."""
        key = leaf.key
        self.leaves[key] = self.lengths[len(key)][key] = leaf
        self.tokens.update(key)
        self.n_seeds += leaf.seeded
        self._near[_nearby(key)][key] = None

    def remove(self, leaf: Leaf) -> None:
        """Keep a leaf no longer."""
        key = leaf.key
        del self.leaves[key], self.lengths[len(key)][key]
        self.n_seeds -= leaf.seeded
        del (near := self._near[_nearby(key)])[key]
        if not near:
            del self._near[_nearby(key)]

    def novelty(self, key: Key) -> float:
        """Distance of a key from the nearest of its length and first word; 1 if there is none.

        Of very many only the oldest are looked at.
        """
        near = islice(self._near.get(_nearby(key), ()), NEAR)
        return min((novelty(key, other) for other in near), default=1.0)


def _nearby(key: Key) -> tuple[int, str]:
    return len(key), key[0] if key else ""
