"""Memories: what they all can do, and the cache that keeps distinct things."""

from __future__ import annotations

import copy
import os
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, Self, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import absorb, engines, inputs, reading, snapshot
from .guard import UpdateGuard
from .policy import Concentration, Merge, Metric, check_metric
from .rule import Keys
from .slots import MOST, Bools, Ints, Slots
from .values import Values

OnBad = Literal["raise", "skip"]
T = TypeVar("T", Concentration, Merge)


class Memory(Protocol):
    """Anything that takes in a stream of keys and values and answers queries."""

    def write(self, keys: ArrayLike, values: ArrayLike, /) -> Ints:
        """Take in (L, D) keys and (L, C) values; a slot id per token, -1 if it is not stored."""
        ...

    def read(self, queries: ArrayLike, /) -> NDArray[Any]:
        """Answer (Q, D) queries with (Q, C) values; nothing changes."""
        ...

    def __len__(self) -> int:
        """Slots held."""
        ...

    @property
    def nbytes(self) -> int:
        """What it really costs."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SlotTable:
    """The slots of a cache as arrays, oldest first.

    ``keys`` are as the cache compares them: of length one under the cosine, centred if it centres.
    The original row of a slot's first occurrence is row ``first_seen`` of your stream.
    """

    ids: Ints
    keys: Keys  # (S, D)
    values: NDArray[Any] | None  # (S, C) vectors, (S,) labels, or (S, classes) counts
    usage: NDArray[np.float64]
    count: Ints
    first_seen: Ints
    last_seen: Ints

    def __len__(self) -> int:
        return len(self.ids)


def _policy(given: T | None, kind: type[T], example: str) -> T:
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TypeError(f"expected a {kind.__name__} such as {example}, got {given!r}")
    return given


class Cache:
    """A memory that opens a slot only for what is novel and merges every repeat.

    >>> facts = np.eye(3)[[1, 0, 2, 0, 1, 2]]  # sky, apple, grass, apple, sky, grass
    >>> cache = Cache(Concentration.fixed(tau=0.5))
    >>> cache.write(facts, [1, 0, 2, 0, 1, 2])  # blue, red, green, red, blue, green
    array([0, 1, 2, 1, 0, 2])
    >>> cache.read([1.0, 0.1, 0.0])  # apple?
    array([0])
    >>> cache
    Cache(tau=0.5, 3 slots for 6 tokens, 180 bytes, cosine, first key, first value, blocked engine)
    """

    def __init__(
        self,
        concentration: Concentration | None = None,
        *,
        merge: Merge | None = None,
        metric: Metric = "cosine",
        centre: bool = False,
        on_bad: OnBad = "raise",
        engine: engines.EngineName = "auto",
    ) -> None:
        """Start empty; see `Concentration` and `Merge` for what the policies mean.

        ``seen`` counts the rows offered so far, ``skipped`` those passed over as bad.
        """
        self.concentration = _policy(concentration, Concentration, "Concentration.fixed(0.5)")
        self.merge = _policy(merge, Merge, "Merge(value='last')")
        check_metric(metric, self.concentration.tau)
        if centre and metric != "cosine":
            raise ValueError("centring changes no distance; use it with metric='cosine'")
        if on_bad not in get_args(OnBad):
            raise ValueError(f"on_bad must be one of {get_args(OnBad)}, got {on_bad!r}")
        self.metric: Metric = metric
        self.on_bad: OnBad = on_bad
        self.seen = 0
        self.skipped = 0
        self._engine = engines.choose(engine, self.concentration, self.merge)
        self._centre = inputs.Centre() if centre else None
        self._slots = Slots(self.merge, metric)
        self._values = Values(self.merge.value)
        self._guard = UpdateGuard("cache")

    @inputs.calm
    def write(self, keys: ArrayLike, values: ArrayLike | None = None) -> Ints:
        """Take in tokens, in chunks of any size, and return the id of each token's slot.

        Under a budget a slot may be evicted by a later token of the same chunk; its id stays its.
        """
        rows = inputs.as_rows(keys, self.width)
        single = len(rows) == 1 and np.ndim(keys) == 1
        kind, given = inputs.as_values(values, len(rows), single=single)
        if len(rows) == 0:
            return np.empty(0, np.int64)
        stored = self._values.admit(kind, given)
        good = self._good(rows, given, stored)
        ids = np.full(len(rows), -1, np.int64)
        with self._guard:
            if self.width is None and good.any():
                self._slots.start(rows.shape[1], self._values.fix(kind, given))
            for start in range(0, len(rows), inputs.BLOCK):
                part = slice(start, start + inputs.BLOCK)
                mask = good[part]
                places = np.arange(len(mask))
                if mask.all():
                    ids[part] = self._write(rows[part], given[part], places)
                elif mask.any():
                    places = places[mask]
                    ids[start + places] = self._write(rows[part][mask], given[part][mask], places)
                self.seen += len(mask)
                self.skipped += len(mask) - int(mask.sum())
        return ids

    def read(self, queries: ArrayLike, theta: float = 0.05) -> NDArray[Any]:
        """Attention over the slots (paper, eq. 3): mean vectors (Q, C), or labels (Q,)."""
        return self._answer(queries, theta, weighed=False)

    def read_mass(self, queries: ArrayLike, theta: float = 0.05) -> NDArray[Any]:
        """Attention in which a slot weighs as many tokens as it holds.

        With identical repeats this is attention over every token of the stream.
        """
        return self._answer(queries, theta, weighed=True)

    @inputs.calm
    def distribution(self, queries: ArrayLike, theta: float = 0.05) -> tuple[Ints, NDArray[Any]]:
        """Labels in rising order (C,), and the mass that each query gives them (Q, C)."""
        rows = self._ready(queries)
        if self._values.kind != "label":
            raise ValueError("this cache holds vectors, which have no classes; use read")
        classes, spread = self._values.spread(self._slots)
        parts = [spread(mass) for mass in reading.attention(self._slots, rows, theta, None)]
        return classes, np.concatenate([np.empty((0, len(classes))), *parts])

    @inputs.calm
    def nearest(self, queries: ArrayLike) -> tuple[Ints, NDArray[np.float64]]:
        """Id and similarity of the slot nearest to each query; -1 and -inf while empty.

        Similarity is the cosine, or minus the squared distance under the euclidean metric.
        """
        rows = self._queries(queries)
        if len(self) == 0:
            return np.full(len(rows), -1), np.full(len(rows), -np.inf)
        found, squared = reading.nearest(self._slots, rows, self.concentration.tau)
        if self.metric == "cosine":
            return self._slots["ids"][found], 1 - np.minimum(squared / 2, 2.0)
        return self._slots["ids"][found], -squared

    @inputs.calm
    def absorb(self, other: Cache) -> Ints:
        """Take in another cache's slots by the rule, as if its stream had followed this one's.

        Returns the id here of each of its slots, oldest first (under a budget some may be evicted
        again). Counts and usage are added. Our tau and decay rule; the other's may differ. Centred
        caches compare keys that each centred by its own mean, which agree once both have settled.
        """
        if not isinstance(other, Cache):
            raise TypeError(f"only a Cache can be absorbed, got {type(other).__name__}")
        other._guard.check()
        ours = (self.metric, self.merge, self._centre is not None)
        theirs = (other.metric, other.merge, other._centre is not None)
        if ours != theirs:
            raise ValueError(f"caches must share metric, merge and centring: {ours} and {theirs}")
        if other.width is None:
            self.seen, self.skipped = self.seen + other.seen, self.skipped + other.skipped
            return np.empty(0, np.int64)
        kind, example = other._values.example()
        inputs.as_rows(other._slots["keys"], self.width, "the other cache's keys")
        self._values.admit(kind, example)
        slots = copy.deepcopy(other._slots) if other is self else other._slots
        with self._guard:
            if self.width is None:
                self._slots.start(other.width, self._values.fix(kind, example))
            values = self._values.translate(self._slots, other._values, slots)
            ids = absorb.absorb(self._slots, self.concentration, slots, values, self.seen)
            if self._centre is not None and other._centre is not None:
                self._centre.add(other._centre)
            self.seen, self.skipped = self.seen + other.seen, self.skipped + other.skipped
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to one file, whole or not at all."""
        snapshot.save(path, "cache", *self._dump())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The cache that was saved, bit for bit; a damaged or foreign file is refused."""
        tensors, state = snapshot.load(path, "cache")
        try:
            return cls._restore(tensors, state)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise snapshot.SnapshotError(f"{path} does not describe a cache: {error!r}") from error

    def __copy__(self) -> Self:
        """A cache of its own: two that share slots would not agree on what they have seen."""
        return copy.deepcopy(self)

    def __len__(self) -> int:
        """Slots held now."""
        return self._slots.n

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        policy, merge = self.concentration, self.merge
        budget = f", budget {self.budget:.4g}" if policy.bounded else ""
        centred = ", centred" if self._centre else ""
        return (
            f"Cache(tau={policy.tau:g}{budget}, {len(self)} slots for {self._slots.tokens} tokens, "
            f"{self.nbytes:,} bytes, {self.metric}{centred}, {merge.key} key, {merge.value} value, "
            f"{self._engine.name} engine)"
        )

    @property
    def nbytes(self) -> int:
        """Bytes held for the slots, room for growth included."""
        centre = 0 if self._centre is None else 8 * (self.width or 0)
        return self._slots.nbytes + centre + 16 * len(self._values.codes)

    @property
    def temperature(self) -> float:
        """How often slots opened lately, in [0, 1] (paper, eq. 4)."""
        return self._slots.temperature

    @property
    def budget(self) -> float:
        """Slots granted now (paper, eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature

    @property
    def width(self) -> int | None:
        """Numbers in a key; None until the first token."""
        return int(self._slots.columns["keys"].shape[1]) if self._slots.columns else None

    @property
    def born(self) -> int:
        """Slots ever opened; the next one gets this id."""
        return self._slots.born

    @property
    def classes(self) -> Ints:
        """Labels held under ``Merge(value="counts")``, in rising order: the columns of a count."""
        self._guard.check()
        return self._values.classes(self._slots)

    @property
    @inputs.calm
    def slots(self) -> SlotTable:
        """A copy of all slots, oldest first."""
        self._guard.check()
        if self.width is None:
            none, no = np.empty(0, np.int64), np.empty(0)
            return SlotTable(none, np.empty((0, 0), np.float32), None, no, none, none, none)
        slots, order = self._slots, np.argsort(self._slots["ids"])
        names = ("ids", "keys", "usage", "count", "first_seen", "last_seen")
        columns: dict[str, Any] = {name: slots[name][order] for name in names}
        columns["usage"] = columns["usage"] / slots.worth
        return SlotTable(values=self._values.table(slots, order), **columns)

    def _dump(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All there is to save, as `_restore` takes it."""
        self._guard.check()
        slots, tensors = self._slots, dict[str, NDArray[Any]]()
        if slots.columns:
            order = np.argsort(slots["ids"])
            tensors = {name: slots[name][order] for name in slots.columns}
        if "values" in tensors:
            tensors["values"] = self._values.sorted(slots, tensors["values"])
        if self._centre is not None and self._centre.total is not None:
            tensors["centre"] = self._centre.total
        state = {
            "concentration": asdict(self.concentration),
            "merge": asdict(self.merge),
            "metric": self.metric,
            "centre": None if self._centre is None else self._centre.tokens,
            "on_bad": self.on_bad,
            "counters": [self.seen, self.skipped],
            "numbers": {name: getattr(slots, name) for name in Slots.NUMBERS},
            "values": self._values.state(slots),
        }
        return tensors, state

    @classmethod
    def _restore(cls, tensors: dict[str, NDArray[Any]], state: dict[str, Any]) -> Self:
        cache = cls(
            Concentration(**state["concentration"]),
            merge=Merge(**state["merge"]),
            metric=state["metric"],
            centre=state["centre"] is not None,
            on_bad=state["on_bad"],
        )
        cache.seen, cache.skipped = map(int, state["counters"])
        if not 0 <= cache.skipped <= cache.seen <= MOST:
            raise ValueError(f"counters {state['counters']}")
        cache._values.restore(state["values"])
        if cache._centre is not None:
            cache._centre.restore(tensors.pop("centre", None), state["centre"])
        cache._slots.restore(tensors, state["numbers"], cache._values.column(), cache.seen)
        if cache._centre is not None and cache._centre.width not in (None, cache.width):
            raise ValueError(f"a mean of {cache._centre.width} numbers for keys of {cache.width}")
        return cache

    def _write(self, rows: NDArray[Any], values: NDArray[Any], places: Ints) -> Ints:
        keys = np.empty(rows.shape, np.float32)
        for part in inputs.pieces(rows):
            compared = inputs.comparable(rows[part], self.metric)
            keys[part] = compared if self._centre is None else self._centre.learn(compared)
        keys += np.float32(0)  # turns -0 into 0, so that equal rows are equal byte for byte
        coded = self._values.encode(self._slots, values)
        times = self.seen + places
        return engines.write(self._slots, self.concentration, self._engine, keys, coded, times)

    def _good(self, rows: NDArray[Any], values: NDArray[Any], stored: type[np.generic]) -> Bools:
        bad, wrong = inputs.faults(rows, self.metric), inputs.value_faults(values, stored)
        if self.on_bad == "raise" and bad.any():
            raise inputs.explain(rows, bad, self.metric)
        if self.on_bad == "raise" and wrong.any():
            raise inputs.explain(values, wrong, "euclidean", "value")
        return ~(bad | wrong)

    def _queries(self, queries: ArrayLike) -> Keys:
        self._guard.check()
        rows = inputs.as_rows(queries, self.width, "queries")
        if (bad := inputs.faults(rows, self.metric)).any():
            raise inputs.explain(rows, bad, self.metric, "query")
        compared = inputs.comparable(rows, self.metric)
        if self._centre is not None:
            compared = self._centre.shift(compared)
        return compared.astype(np.float32)

    def _ready(self, queries: ArrayLike) -> Keys:
        rows = self._queries(queries)
        if len(self) == 0:
            raise ValueError("nothing was written yet, so there is nothing to read; write first")
        if self._values.kind == "none":
            raise ValueError("no values were written; use nearest, or write(keys, values)")
        return rows

    @inputs.calm
    def _answer(self, queries: ArrayLike, theta: float, *, weighed: bool) -> NDArray[Any]:
        rows = self._ready(queries)
        weight = self._slots["count"] if weighed else None
        if self._values.kind == "label":
            classes, spread = self._values.spread(self._slots)
            blocks = reading.attention(self._slots, rows, theta, weight)
            best = [spread(mass).argmax(axis=1) for mass in blocks]
            return np.asarray(classes[np.concatenate([np.empty(0, np.int64), *best])])
        values = self._values.table(self._slots, np.arange(len(self)))
        assert values is not None
        parts = [mass @ values for mass in reading.attention(self._slots, rows, theta, weight)]
        return np.concatenate([values[:0], *parts])
