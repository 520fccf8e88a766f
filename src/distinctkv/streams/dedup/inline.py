"""One row at a time at the price of a batch: decided at once, handed on many at a time."""

# S slots, D key size

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import engines
from ...engines import blocked
from ...engines.geometry import SINGLE
from ...entry import faults
from ...memory import Cache
from ...policy import Concentration
from ...rule import Floats, Keys, distances, unit
from ...slots import Bools, Decision, Ints, Slots
from .screen import Screen

HELD = 512  # rows held back before the cache gets them


class Inline:
    """Decides single rows for a cache of first-occurrence keys, cosines and no budget."""

    def __init__(self, cache: Cache, width: int) -> None:
        self._tau = tau = cache.concentration.tau
        self._cache, self._screen = cache, (screen := Screen(tau, width))
        self._error = (screen.width + 16) * SINGLE
        # Above this similarity no other slot can be nearer (`engines.geometry.Geometry.of`).
        sure = sqrt(max(0.0, 1 - tau / 2) + 8 * SINGLE) + 1e-6 + self._error
        self._sure = sure if screen.usable else inf
        self._rows = np.empty((HELD, screen.width), np.float32)
        self._ids: list[int] = []
        self._births: list[int] = []  # places in `_rows` of those that open
        self._known = 0  # slots of the cache when last looked at
        self.refresh()

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self._screen.width

    @property
    def waiting(self) -> int:
        """Rows that the cache does not have yet."""
        return len(self._ids)

    def place(self, row: NDArray[Any]) -> tuple[int, float | None] | None:
        """Id of a row's slot and its similarity to it, None if it opens it; None for a bad row."""
        key = _key(row)
        if key is None:
            return None
        head = self._screen.head(key) if self._screen.ready else None
        found = self._find(key, head)
        if found is not None:
            self.repeat(found[0])
            return found
        number, n = self._n_slots, len(self._ids)
        if head is not None:
            self._screen.put(head, number)
        self._rows[n] = key
        self._births.append(n)
        self.repeat(number)
        return number, None

    def repeat(self, number: int) -> None:
        """A row went to this slot."""
        self._ids.append(number)
        if len(self._ids) == HELD:
            self.flush()

    def flush(self) -> None:
        """Hand the rows that were held back to the cache."""
        if not self._ids:
            return
        cache, n = self._cache, len(self._ids)
        ids, opened = np.array(self._ids), np.zeros(n, bool)
        opened[self._births] = True
        self._ids, self._births = [], []
        with cache._changing():
            if cache.width is None:
                cache._slots.start(self._screen.width, cache._values.fix("none", np.empty((0, 0))))
            times = cache.seen + np.arange(n)
            engine = engines.Engine("inline", lambda _: n, _Decided(ids, opened))
            keys = self._rows[:n]
            engines.write(cache._slots, cache.concentration, engine, keys, None, times)
            cache.seen += n
        self.refresh()

    def refresh(self) -> None:
        """Take note of the slots that the cache has now."""
        slots, screen, known = self._cache._slots, self._screen, self._known
        self._order, self._known = _rows(slots), slots.n
        if screen.due(slots.n):
            screen.fit(slots["keys"][self._order])
        elif screen.ready and slots.n > known:
            screen.put(screen.heads(slots["keys"][self._order[known:]]), known)

    @property
    def _n_slots(self) -> int:
        return self._known + len(self._births)

    def _find(self, key: Keys, head: NDArray[np.float32] | None) -> tuple[int, float] | None:
        """The slot that a key repeats, and its similarity, by the law."""
        low = self._screen.low
        if head is None:
            near = np.arange(self._n_slots)
        else:
            bounds = self._screen.bounds(head, self._n_slots)[0]
            near = (bounds >= low - self._screen.margin).nonzero()[0]
            if len(near) > 1:
                likely = near[bounds[near].argmax()][None]
                if (found := self._nearest(key, likely)) and found[1] > self._sure:
                    return found
        if len(near) > 1 and self._screen.usable:
            scores = self._scores(near, key)
            near = near[scores >= max(low, float(scores.max())) - 2 * self._error]
        return self._nearest(key, near) if len(near) else None

    def _nearest(self, key: Keys, ids: Ints) -> tuple[int, float] | None:
        """By the law: the nearest of these slots and its similarity, if the key is not novel."""
        squared = distances(key, self._keys(ids))
        nearest = int(squared.argmin())  # the first of equals, and so the oldest
        novelty = min(float(squared[nearest]) / 2, 2.0)
        found = int(ids[nearest]), max(1 - novelty, self._screen.low)
        return None if novelty > self._tau else found

    def _scores(self, ids: Ints, key: Keys) -> NDArray[np.float32]:
        """Products of a key with those of slots; of nearly all, without moving them."""
        if 4 * len(ids) < self._n_slots:
            return np.asarray(self._keys(ids) @ key)
        slots = self._cache._slots
        old = (slots["keys"] @ key)[self._order] if self._known else np.empty(0, np.float32)
        return np.concatenate([old, self._rows[self._births] @ key])[ids]

    def _keys(self, ids: Ints) -> Keys:
        known = self._known
        if self._births and ids[-1] >= known:
            old = int(np.searchsorted(ids, known))
            fresh = self._rows[[self._births[i - known] for i in ids[old:].tolist()]]
            return np.concatenate([self._keys(ids[:old]), fresh]) if old else fresh
        keys: Keys = self._cache._slots["keys"][self._order[ids]]
        return keys


class _Decided:
    """An engine that was told what to decide."""

    def __init__(self, ids: Ints, opened: Bools) -> None:
        self._ids, self._opened = ids, opened

    def __call__(self, slots: Slots, policy: Concentration, keys: Keys, _: Floats) -> Decision:
        n = len(keys)
        ids, opened = self._ids[:n], self._opened[:n]
        self._ids, self._opened = self._ids[n:], self._opened[n:]
        fresh = ids >= slots.n
        columns = np.empty(n, np.int64)
        columns[~fresh] = _rows(slots)[ids[~fresh]]
        columns[fresh] = slots.n + np.flatnonzero(opened)[ids[fresh] - slots.n]
        return Decision(columns, opened, blocked.warm(slots.temperature, opened, policy.rate))


def _rows(slots: Slots) -> Ints:
    """The row of each id; none was ever evicted."""
    rows = np.empty(slots.n, np.int64)
    if slots.n:
        rows[slots["ids"]] = np.arange(slots.n)
    return rows


def _key(row: NDArray[Any]) -> Keys | None:
    """A row as a cache stores it, bit for bit; None if it cannot be a key."""
    wide = row.astype(np.float64)[None]
    square = float(np.einsum("ij,ij->i", wide, wide)[0])
    if not 1e-200 < square < 1e200 or len(row) > 4096:
        if faults(row[None], "cosine")[0]:
            return None
        wide = unit(row)
    else:
        wide /= sqrt(square)
    return np.asarray(wide[0].astype(np.float32) + np.float32(0))
