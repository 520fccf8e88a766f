"""The interface of all memories, and the cache that opens a slot only for what is novel."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import absorb, engines, inputs, snapshot
from .engines import blocked
from .engines.bounds import DOUBLE, ScoreBounds, paired_novelty
from .guard import UpdateGuard
from .policy import Concentration, Merge, Metric, check_metric, check_real
from .rule import Floats, Keys, distances
from .slots import MAX_TOKENS, Bools, Ints, Slots, Values

# L tokens, S slots, Q queries, D key size, C value size or classes
OnBad = Literal["raise", "skip"]
READ_CELLS = 1 << 22  # weights of a read held at once


class Memory(Protocol):
    """Anything that stores a stream of keys and values and answers queries."""

    def write(self, keys: ArrayLike, values: ArrayLike, /) -> Ints:
        """Store (L, D) keys and (L, C) values; a slot id per token, -1 if it is not stored."""
        ...

    def read(self, queries: ArrayLike, /) -> NDArray[Any]:
        """Answer (Q, D) queries with (Q, C) values, without changing the memory."""
        ...

    def __len__(self) -> int:
        """Slots held now."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
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

        ``seen`` counts the rows written so far, ``skipped`` the bad rows among them.
        """
        self.concentration = Concentration() if concentration is None else concentration
        self.merge = Merge() if merge is None else merge
        if not isinstance(self.concentration, Concentration):
            raise TypeError(f"give Concentration.fixed(0.3) or the like, got {concentration!r}")
        if not isinstance(self.merge, Merge):
            raise TypeError(f"give merge=Merge(value='mean') or the like, got {merge!r}")
        check_metric(metric, self.concentration.tau)
        if centre and metric != "cosine":
            raise ValueError("centring changes no distance; use it with metric='cosine'")
        if on_bad not in get_args(OnBad):
            raise ValueError(f"on_bad must be one of {get_args(OnBad)}, got {on_bad!r}")
        self.metric: Metric = metric
        self.on_bad: OnBad = on_bad
        self.seen = 0
        self.skipped = 0
        self._engine = engines.choose(engine, self.concentration, self.merge, metric)
        self._centre = inputs.Centre() if centre else None
        self._slots = Slots(self.merge, metric)
        self._values = Values(self.merge.value)
        self._guard = UpdateGuard("cache")

    @inputs.ignore_fp_warnings
    def write(
        self,
        keys: ArrayLike,
        values: ArrayLike | None = None,
        *,
        similarity_out: Floats | None = None,
    ) -> Ints:
        """Store tokens, in chunks of any size, and return the id of each token's slot (L,).

        Under a budget, later tokens of the same chunk may evict that slot; ids are never reused.
        ``similarity_out`` (L,) is filled with the similarity of each token to the key of its slot,
        nan for a skipped row; see `nearest`.
        """
        rows = inputs.as_rows(keys, self.width)
        single = len(rows) == 1 and np.ndim(keys) == 1
        kind, given = inputs.as_values(values, len(rows), single=single)
        if len(rows) == 0:
            return np.empty(0, np.int64)
        stored = self._values.check(kind, given)
        good = self._good(rows, given, stored)
        ids = np.full(len(rows), -1, np.int64)
        novelty = None if similarity_out is None else np.full(len(rows), np.nan)
        with self._guard:
            if self.width is None and good.any():
                self._slots.set_shape(rows.shape[1], self._values.fix(kind, given))
            for start in range(0, len(rows), inputs.BLOCK):
                stop = min(start + inputs.BLOCK, len(rows))
                places = start + np.flatnonzero(good[start:stop])
                if len(places):
                    whole = len(places) == stop - start
                    chosen = slice(start, stop) if whole else places
                    ids[chosen] = self._write(rows, given, chosen, places - start, novelty)
                self.seen += stop - start
                self.skipped += stop - start - len(places)
        if similarity_out is not None and novelty is not None:
            similarity_out[:] = self._similarity(novelty)
        return ids

    def read(self, queries: ArrayLike, theta: float = 0.05) -> NDArray[Any]:
        """Attention over the slots (paper, eq. 3): mean vectors (Q, C), or labels (Q,)."""
        return self._answer(queries, theta, by_count=False)

    def read_mass(self, queries: ArrayLike, theta: float = 0.05) -> NDArray[Any]:
        """Attention in which each slot has the weight of all tokens that it holds.

        With identical repeats this is attention over every token of the stream.
        """
        return self._answer(queries, theta, by_count=True)

    @inputs.ignore_fp_warnings
    def distribution(self, queries: ArrayLike, theta: float = 0.05) -> tuple[Ints, NDArray[Any]]:
        """Labels in rising order (C,), and the attention mass of each label (Q, C)."""
        rows = self._ready(queries)
        if self._values.kind != "label":
            raise ValueError("this cache holds vectors, which have no classes; use read")
        classes, masses = self._values.label_masses(self._slots)
        parts = [masses(weights) for weights in _attention(self._slots, rows, theta, None)]
        return classes, np.concatenate([np.empty((0, len(classes))), *parts])

    @inputs.ignore_fp_warnings
    def nearest(self, queries: ArrayLike) -> tuple[Ints, Floats]:
        """Id and similarity of the slot nearest to each query; -1 and -inf while empty.

        Similarity is the cosine, or minus the squared distance under the euclidean metric.
        """
        ids, novelty = self.novelty(queries)
        return ids, self._similarity(novelty)

    @inputs.ignore_fp_warnings
    def novelty(self, queries: ArrayLike) -> tuple[Ints, Floats]:
        """Id of the slot nearest to each query, and the novelty to it (paper, eq. 1).

        While the cache is empty these are -1 and inf.
        """
        rows = self._queries(queries)
        if len(self) == 0:
            return np.full(len(rows), -1), np.full(len(rows), inf)
        found = _nearest_rows(self._slots, rows, self.concentration.tau)
        keys = self._slots["keys"][found]
        return self._slots["ids"][found], paired_novelty(rows, keys, self.metric)

    def check_absorb(self, other: Cache) -> None:
        """Raise unless the other cache can be absorbed."""
        other._guard.check()
        ours = (self.metric, self.merge, self._centre is not None)
        theirs = (other.metric, other.merge, other._centre is not None)
        if ours != theirs:
            raise ValueError(f"caches must share metric, merge and centring: {ours} and {theirs}")
        if other.width is not None:
            inputs.as_rows(other._slots["keys"], self.width, "the other cache's keys")
            self._values.check(*other._values.example())

    @inputs.ignore_fp_warnings
    def absorb(self, other: Cache, *, similarity_out: Floats | None = None) -> Ints:
        """Merge another cache's slots by the rule, as if its stream had followed this one's.

        Returns the id here of each of its slots, oldest first (under a budget some may be evicted
        again). Counts and usage are added. Our tau and decay rule; the other's may differ. Centred
        caches compare keys that each centred by its own mean; the means converge over the stream.
        """
        self.check_absorb(other)
        slots = copy.deepcopy(other._slots) if other is self else other._slots
        ids = np.empty(0, np.int64)
        with self._guard:
            if other.width is not None:
                if self.width is None:
                    shape = self._values.fix(*other._values.example())
                    self._slots.set_shape(other.width, shape)
                values = self._values.translate(self._slots, other._values, slots)
                ids, novelty = absorb.absorb(
                    self._slots, self.concentration, slots, values, self.seen
                )
                if similarity_out is not None:
                    similarity_out[:] = self._similarity(novelty)
            if self._centre is not None and other._centre is not None:
                self._centre.add(other._centre)
            self.seen, self.skipped = self.seen + other.seen, self.skipped + other.skipped
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to one file atomically."""
        snapshot.save(path, "cache", *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The cache that was saved, bit for bit; raises `SnapshotError` for any other file."""
        tensors, state = snapshot.load(path, "cache")
        try:
            return cls.from_state(tensors, state)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise snapshot.SnapshotError(f"{path} does not describe a cache: {error!r}") from error

    def __copy__(self) -> Self:
        """A deep copy: two caches must not share slots."""
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
        """Bytes allocated for the slots, the room for growth included."""
        centre = 0 if self._centre is None else 8 * (self.width or 0)
        return self._slots.nbytes + centre + 16 * len(self._values.codes)

    @property
    def temperature(self) -> float:
        """Moving average of how often slots opened, in [0, 1] (paper, eq. 4)."""
        return self._slots.temperature

    @property
    def budget(self) -> float:
        """Slots granted now (paper, eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature

    @property
    def width(self) -> int | None:
        """Elements of a key, D; None until the first token."""
        return int(self._slots.columns["keys"].shape[1]) if self._slots.columns else None

    @property
    def n_opened(self) -> int:
        """Slots ever opened; the next one gets this id."""
        return self._slots.n_opened

    @property
    def ids(self) -> Ints:
        """Ids of the slots held now, oldest first."""
        if self.width is None:
            return np.empty(0, np.int64)
        return np.sort(self._slots["ids"], kind="stable")

    @property
    def classes(self) -> Ints:
        """Labels held under ``Merge(value="counts")``, in rising order: the columns of a count."""
        self._guard.check()
        return self._values.classes(self._slots)

    @property
    @inputs.ignore_fp_warnings
    def slots(self) -> SlotTable:
        """A copy of all slots, oldest first."""
        self._guard.check()
        if self.width is None:
            ints, floats = np.empty(0, np.int64), np.empty(0)
            keys = np.empty((0, 0), np.float32)
            return SlotTable(ints, keys, None, floats, ints, ints, ints)
        slots, order = self._slots, np.argsort(self._slots["ids"])
        names = ("ids", "keys", "usage", "count", "first_seen", "last_seen")
        columns: dict[str, Any] = {name: slots[name][order] for name in names}
        columns["usage"] = columns["usage"] / slots.use_weight
        return SlotTable(values=self._values.table(slots, order), **columns)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON of the whole cache, as `from_state` takes them."""
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
    def from_state(cls, tensors: dict[str, NDArray[Any]], state: dict[str, Any]) -> Self:
        """A cache from its `state`; raises if that is inconsistent."""
        cache = cls(
            Concentration(**state["concentration"]),
            merge=Merge(**state["merge"]),
            metric=state["metric"],
            centre=state["centre"] is not None,
            on_bad=state["on_bad"],
        )
        cache.seen, cache.skipped = map(int, state["counters"])
        if not 0 <= cache.skipped <= cache.seen <= MAX_TOKENS:
            raise ValueError(f"counters {state['counters']}")
        cache._values.restore(state["values"])
        if cache._centre is not None:
            cache._centre.restore(tensors.pop("centre", None), state["centre"])
        cache._slots.restore(tensors, state["numbers"], cache._values.column(), cache.seen)
        if cache._centre is not None and cache._centre.width not in (None, cache.width):
            raise ValueError(f"a mean of {cache._centre.width} numbers for keys of {cache.width}")
        return cache

    def _write(
        self,
        rows: NDArray[Any],
        values: NDArray[Any],
        chosen: slice | Ints,
        offsets: Ints,
        novelty: Floats | None,
    ) -> Ints:
        """Normalise and store the chosen rows, which lie ``offsets`` behind ``seen``."""
        some = rows[chosen]
        keys = np.empty(some.shape, np.float32)
        for part in inputs.blocks(some):
            compared = inputs.comparable(some[part], self.metric)
            keys[part] = compared if self._centre is None else self._centre.learn(compared)
        keys += np.float32(0)  # turns -0 into 0, so that equal rows are equal byte for byte
        coded = self._values.encode(self._slots, values[chosen])
        own = None if novelty is None else np.empty(len(keys))
        times = self.seen + offsets
        ids = engines.write(self._slots, self.concentration, self._engine, keys, coded, times, own)
        if novelty is not None and own is not None:
            novelty[chosen] = own
        return ids

    def _similarity(self, novelty: Floats) -> Floats:
        return 1 - novelty if self.metric == "cosine" else -novelty

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

    @inputs.ignore_fp_warnings
    def _answer(self, queries: ArrayLike, theta: float, *, by_count: bool) -> NDArray[Any]:
        rows = self._ready(queries)
        weight = self._slots["count"] if by_count else None
        if self._values.kind == "label":
            classes, masses = self._values.label_masses(self._slots)
            blocks = _attention(self._slots, rows, theta, weight)
            best = [masses(weights).argmax(axis=1) for weights in blocks]
            return np.asarray(classes[np.concatenate([np.empty(0, np.int64), *best])])
        values = self._values.table(self._slots, np.arange(len(self)))
        assert values is not None
        parts = [weights @ values for weights in _attention(self._slots, rows, theta, weight)]
        return np.concatenate([values[:0], *parts])


def _attention(
    slots: Slots, queries: Keys, theta: float, weight: NDArray[Any] | None
) -> Iterator[NDArray[Any]]:
    """Blocks of softmax weights (Q, S) of queries over slots (paper, eq. 3)."""
    check_real("theta", theta)
    theta = float(theta)
    if theta <= 0:
        raise ValueError(f"theta must be above 0, got {theta}; smaller reads more sharply")
    # Float32 cosines are right to about 1e-6: enough for all but the sharpest reads.
    fine = slots.metric == "euclidean" or theta < 0.01
    keys: NDArray[Any] = slots["keys"].astype(np.float64 if fine else np.float32, copy=False)
    rows: NDArray[Any] = queries.astype(keys.dtype, copy=False)
    half: NDArray[Any] | float = 0.0
    if slots.metric == "euclidean":
        # Shift the origin to the mean of the slots: far from it squares would cancel.
        origin = keys.mean(axis=0)
        keys, rows = keys - origin, rows - origin
    if fine:
        half = np.einsum("ij,ij->i", keys, keys) / 2
    bias = None if weight is None else np.log(weight).astype(keys.dtype)
    step = max(1, READ_CELLS // max(1, slots.n))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        logits: NDArray[Any] = rows[part] @ keys.T - half
        if fine:
            _exact_logits(logits, rows[part], queries[part], slots["keys"], theta)
        # Subtract the maximum before dividing: then nothing overflows, however small theta is.
        logits -= logits.max(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            logits /= theta
        if bias is not None:
            logits += bias
            logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        yield logits


def _exact_logits(logits: Floats, rows: Floats, queries: Keys, keys: Keys, theta: float) -> None:
    """Compute logits from exact distances where rounding exceeds what theta resolves."""
    square, top = (rows * rows).sum(axis=1), logits.max(axis=1)
    error = 8 * (keys.shape[1] + 16) * DOUBLE * (square + np.maximum(square - 2 * top, 0))
    for row in np.flatnonzero(error > 1e-6 * theta):
        # A slot further below the best has weight 0, however many tokens it holds.
        near = np.flatnonzero(logits[row] >= top[row] - 2 * error[row] - 100 * theta)
        logits[row] = -inf
        logits[row, near] = -distances(queries[row], keys[near]) / 2


def _nearest_rows(slots: Slots, queries: Keys, tau: float) -> Ints:
    """Row of the slot nearest to each query, the oldest of equals."""
    rows = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), blocked.CHUNK):
        part = queries[start : start + blocked.CHUNK]
        bounds = ScoreBounds.of_chunk(part, tau, slots.metric, slots.max_norm, all_slots=True)
        bounds.novel_below[:] = -inf  # each query needs its nearest slot, however far that is
        if slots.merge.key != "first":
            bounds.certain_above[:] = inf
        match = blocked.nearest(slots, bounds)
        found = match.column
        uncertain = np.flatnonzero(match.score <= bounds.certain_above)
        for token in uncertain[blocked.tied(bounds, match, uncertain)]:
            found[token], _ = blocked.exact(slots, bounds, int(token), found[:0])
        rows[start : start + len(part)] = found
    return rows
