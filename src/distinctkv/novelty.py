"""Novelty detection: scores each record by all that came before it, and alerts if it is high.

The scores are cosine distances to the known items, which are the slots of a `Cache`.
"""

# L rows, of which some open slots

from __future__ import annotations

import copy
import json
import os
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, nan
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from . import snapshot
from .cache import Cache, OnBad
from .dedup.encoders import (
    Encoder,
    NGrams,
    check_same_encoder,
    describe_encoder,
    restore_encoder,
)
from .dedup.records import RecordEncoder, as_records
from .guard import UpdateGuard
from .inputs import faults
from .policy import Concentration
from .rule import Floats, Keys, distances, unit
from .slots import Ints

KIND = "novelty detector"
SINGLE = 2.0**-24  # rounding of float32
CHUNK = 1024  # rows scored and learned at a time


@dataclass(frozen=True, slots=True)
class KnownItem:
    """Records that are alike: how many there were and when, and the first of them."""

    count: int
    first: int  # number of its first record, from 0
    last: int
    first_at: Any  # when that record came, if that was given
    last_at: Any
    record: Any

    @property
    def first_seen(self) -> Any:  # noqa: ANN401
        """When its first record came, or else the number of that record."""
        return self.first if self.first_at is None else self.first_at

    @property
    def last_seen(self) -> Any:  # noqa: ANN401
        """When its last record came, or else the number of that record."""
        return self.last if self.last_at is None else self.last_at

    def add(self, count: int, last: int, last_at: Any) -> KnownItem:  # noqa: ANN401
        """The item after ``count`` more records, the last of them this one."""
        return replace(self, count=self.count + count, last=last, last_at=last_at)


class Detection(NamedTuple):
    """The novelty of a record, and the known item that was nearest to it.

    It is true if it is an alert: ``if detector.add(record): ...``.
    """

    number: int  # of the record, from 0
    novelty: float  # 1 - cosine to the nearest known item; inf for the first record, nan if bad
    threshold: float  # the quantile of novelty in the recent past
    item: int | None  # id of the nearest known item
    known: KnownItem | None  # that item as it was before this record
    reason: str | None = None  # why a bad record, which was skipped, could not be compared

    def __bool__(self) -> bool:
        return self.alert

    @property
    def alert(self) -> bool:
        """Whether the novelty is above the threshold."""
        return self.novelty > self.threshold

    @property
    def bad(self) -> bool:
        """Whether the record could not be compared."""
        return self.novelty != self.novelty


class Quantile:
    """The ``share`` quantile of the last ``window`` numbers, rounded up.

    If the next number is drawn as these were, it is above the threshold with a probability of at
    most ``1 - share``: the rank is that of n + 1 numbers, and infinite while there are too few.

    >>> past = Quantile(0.75, window=4)
    >>> for number in (1.0, 2.0, 3.0):
    ...     past.add(number)
    >>> past.threshold
    3.0
    """

    def __init__(self, share: float, window: int, numbers: Iterable[float] = ()) -> None:
        if not 0 < share < 1:
            raise ValueError(f"quantile must lie in (0, 1), got {share}; .99 alerts 1 row in 100")
        if window < 1 or window % 1:
            raise ValueError(f"window must be a whole number of rows, 1 or more, got {window!r}")
        window = int(window)
        if ceil(share * (window + 1)) > window:
            raise ValueError(
                f"a window of {window} rows is too short for the quantile {share:g}; "
                f"it takes at least {ceil(share / (1 - share))}"
            )
        self.share, self.window = float(share), window
        self.recent = deque(numbers, maxlen=window)
        self._sorted = sorted(self.recent)

    @property
    def threshold(self) -> float:
        """What the next number is compared with."""
        rank = ceil(self.share * (len(self._sorted) + 1))
        return self._sorted[rank - 1] if rank <= len(self._sorted) else inf

    def add(self, number: float) -> None:
        """Add a number, and drop the oldest if there are more than the window holds."""
        if len(self.recent) == self.window:
            del self._sorted[bisect_left(self._sorted, self.recent[0])]
        self.recent.append(number)
        insort(self._sorted, number)

    def absorb(self, other: Quantile) -> None:
        """Merge the numbers of another, as if they had followed."""
        self.recent.extend(other.recent)
        self._sorted = sorted(self.recent)


class NoveltyDetector:
    """Scores each record by what came before it, then learns it: one pass, bounded if you wish.

    Records are those of `Deduplicator`; those with a cosine of at least ``similarity`` are one
    known item. A record is an alert if its novelty is above the ``quantile`` of the last ``window``
    records: a share of at most ``1 - quantile`` of records like those before. There are no alerts
    while there are too few records for that.

    >>> detector = NoveltyDetector(quantile=0.9, window=50)
    >>> for n in range(40):
    ...     found = detector.add(f"door {n % 5} opened", at=f"10:{n:02}")
    >>> found = detector.add("disk is on fire", at="10:41")
    >>> found.alert, round(found.novelty, 2), found.known.record
    (True, 1.0, 'door 1 opened')
    >>> found.known.count, found.known.last_seen
    (8, '10:36')
    >>> detector
    NoveltyDetector(quantile=0.9, 6 known items, 41 records)
    """

    def __init__(
        self,
        similarity: float = 0.9,
        *,
        quantile: float = 0.99,
        window: int = 2000,
        encode: Encoder | None = None,
        field: str | None = None,
        budget: float = inf,
        on_bad: OnBad = "raise",
    ) -> None:
        """Start empty; ``on_bad="skip"`` counts bad records, which are no alerts nor learned."""
        self._cache = Cache(Concentration.similar(similarity, budget), on_bad=on_bad)
        self._guard = UpdateGuard("detector")
        self._past = Quantile(quantile, window)
        self._encoder = RecordEncoder(NGrams() if encode is None else encode, field, on_bad)
        self._items: dict[int, KnownItem] = {}  # by slot

    def add(self, record: Any, at: Any = None) -> Detection:  # noqa: ANN401
        """Score one record and learn it; ``at`` says when it came, or else its number does."""
        return self.add_many([record], [at])[0]

    def add_many(self, records: Iterable[Any], at: Iterable[Any] | None = None) -> list[Detection]:
        """Score records and learn them, as one by one; if one raises an error, none is learned."""
        given = [*as_records(records)]
        times = [None] * len(given) if at is None else [*at]
        if len(times) != len(given):
            raise ValueError(f"{len(times)} times do not fit {len(given)} records")
        if not given:
            return []
        _check_times(times)
        rows = self._encoder.encode_batch(given, self._cache.width, self.seen)
        with self._guard:
            found = self._learn(given, times, rows)
        return [
            one._replace(reason=self._encoder.describe_fault(record, self._cache.width))
            if one.bad
            else one
            for one, record in zip(found, given, strict=True)
        ]

    def score(self, records: Iterable[Any]) -> NDArray[np.float64]:
        """Novelty of records to what is known now; nothing is learned.

        A single text or mapping is one record. The novelty of a bad record is nan if it is skipped.
        """
        self._guard.check()
        given = [records] if isinstance(records, str | bytes | Mapping) else [*as_records(records)]
        found = np.full(len(given), nan)
        if given:
            rows = self._encoder.encode_batch(given, self._cache.width, self.seen)
            good = ~faults(rows, "cosine")
            found[good] = self._cache.novelty(rows[good])[1] if good.any() else nan
        return found

    def absorb(self, other: NoveltyDetector) -> list[int]:
        """Merge what another knows, as if its records had followed; the id here of each item.

        Counts add up. The threshold is that of the last records of both, each as novel as it was
        where it came: what was new to the other counts as new, even if it is known here. Numbers of
        records go on from ours; times that were given do not change.
        """
        if other is self:
            raise ValueError("a detector cannot absorb itself; load it twice for that")
        if (ours := self.setting) != (theirs := other.setting):
            raise ValueError(f"both must compare and alert in one way: {ours} and {theirs}")
        check_same_encoder(self._encoder.encode, other._encoder.encode)
        self._cache.check_absorb(other._cache)
        offset, items = self.seen, [*other.known.values()]
        with self._guard:
            ids: list[int] = self._cache.absorb(other._cache).tolist()
            for slot, item in zip(ids, items, strict=True):
                first, last = item.first + offset, item.last + offset
                if (mine := self._items.get(slot)) is None:
                    self._items[slot] = replace(item, first=first, last=last)
                else:
                    self._items[slot] = mine.add(item.count, last, item.last_at)
            self._past.absorb(other._past)
            self._drop_evicted()
        return ids

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file atomically; records must be texts or JSON-like."""
        known = self.known
        tensors, state = self._cache.state()
        rows = [[s, one.count, one.first_at, one.last_at, one.record] for s, one in known.items()]
        try:
            texts = json.dumps(rows).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
        tensors["known"] = np.frombuffer(texts, np.uint8)
        tensors["past"] = np.array(self._past.recent, np.float64)
        snapshot.save(path, KIND, tensors, {"cache": state, **self.setting})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, encode: Encoder | None = None) -> Self:
        """What was saved; give ``encode`` again if it was your own."""
        tensors, state = snapshot.load(path, KIND)
        try:
            rows = json.loads(tensors.pop("known").tobytes())
            past = tensors.pop("past").tolist()
            cache = Cache.from_state(tensors, state["cache"])
            encode = restore_encoder(state["encode"], encode)
            detector = cls(encode=encode, field=state["field"], on_bad=cache.on_bad)
            detector._past = Quantile(state["quantile"], state["window"], past)
            detector._cache, detector._items = cache, _items_by_slot(cache, rows)
            if any(not 0 <= novelty <= 2 for novelty in past) or cache.metric != "cosine":
                raise ValueError("a novelty outside of [0, 2]")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            said = f"{path} does not describe a detector: {error!r}"
            raise snapshot.SnapshotError(said) from error
        return detector

    @property
    def threshold(self) -> float:
        """The novelty above which the next record is an alert."""
        return self._past.threshold

    @property
    def known(self) -> dict[int, KnownItem]:
        """The items known now, by id, oldest first."""
        self._guard.check()
        return dict(sorted(self._items.items()))

    @property
    def seen(self) -> int:
        """Records so far."""
        return self._cache.seen

    @property
    def skipped(self) -> int:
        """Bad records that were skipped."""
        return self._cache.skipped

    @property
    def similarity(self) -> float:
        """The cosine from which on two records are one item."""
        return 1 - self._cache.concentration.tau

    @property
    def setting(self) -> dict[str, Any]:
        """How records are compared, and which are alerts."""
        return {
            "similarity": self.similarity,
            "quantile": self._past.share,
            "window": self._past.window,
            "encode": describe_encoder(self._encoder.encode),
            "field": self._encoder.field,
        }

    def __copy__(self) -> Self:
        """A deep copy, with the same encoder, which may be a large model."""
        encode = self._encoder.encode
        return copy.deepcopy(self, {id(encode): encode})

    def __len__(self) -> int:
        """Items known now."""
        return len(self._cache)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        sizes = f"{len(self)} known items, {self.seen} records"
        return f"NoveltyDetector(quantile={self._past.share:g}, {sizes})"

    def _learn(self, given: list[Any], times: list[Any], rows: NDArray[Any]) -> list[Detection]:
        first, scored = self.seen, _score_and_write(self._cache, rows)
        columns = (given, times, *(column.tolist() for column in scored))
        found = []
        for number, (record, at, novelty, nearest, slot) in enumerate(
            zip(*columns, strict=True), first
        ):
            found.append(self._detect(number, novelty, nearest))
            if slot < 0:
                continue
            if (item := self._items.get(slot)) is None:
                held = self._encoder.stored(record)
                self._items[slot] = KnownItem(1, number, number, at, at, held)
            else:
                self._items[slot] = item.add(1, number, at)
        self._drop_evicted()
        return found

    def _detect(self, number: int, novelty: float, nearest: int) -> Detection:
        threshold = self._past.threshold
        if nearest < 0:
            return Detection(number, novelty, threshold, None, None)
        self._past.add(novelty)
        return Detection(number, novelty, threshold, nearest, self._items[nearest])

    def _drop_evicted(self) -> None:
        """Drop the items of evicted slots."""
        if len(self._items) > len(self._cache):
            self._items = {slot: self._items[slot] for slot in self._cache.ids.tolist()}


def _check_times(times: list[Any]) -> None:
    """Refuse times that could not be saved."""
    for at in times:
        if at is None or type(at) in (str, int, float):
            continue
        try:
            json.dumps(at)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"at must be a text, a number or JSON-like, to be saved, got {type(at).__name__} "
                f"{at!r}; use at.isoformat(), str(at), int(at) or float(at)"
            ) from error


def _items_by_slot(cache: Cache, rows: list[list[Any]]) -> dict[int, KnownItem]:
    """The saved items of a cache's slots; raise if they do not fit."""
    slots = cache.slots
    if [slot for slot, *_ in rows] != slots.ids.tolist():
        raise ValueError(f"{len(rows)} known items for {len(cache)} slots")
    numbers = zip(rows, slots.first_seen.tolist(), slots.last_seen.tolist(), strict=True)
    return {
        int(slot): KnownItem(int(count), first, last, first_at, last_at, record)
        for (slot, count, first_at, last_at, record), first, last in numbers
    }


class _Scores(NamedTuple):
    """Novelty to the nearest slot before a row, that slot, and the slot that the row went to."""

    novelty: Floats  # inf if there was none, nan for a bad row
    nearest: Ints  # -1 if there was none
    slots: Ints  # -1 for a bad row


def _score_and_write(cache: Cache, rows: NDArray[Any]) -> _Scores:
    """Score rows and write them, as one by one."""
    # Under a budget a slot may be evicted in mid-chunk, and each row must see what is there.
    step = 1 if cache.concentration.bounded else CHUNK
    parts = [_score_chunk(cache, rows[start : start + step]) for start in range(0, len(rows), step)]
    return _Scores(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _score_chunk(cache: Cache, rows: NDArray[Any]) -> _Scores:
    good = ~faults(rows, "cosine")
    if good.all():
        return _score_good(cache, rows)
    found = _Scores(np.full(len(rows), np.nan), *np.full((2, len(rows)), -1))
    # Runs of good rows are scored; the cache only counts bad ones.
    edges = np.flatnonzero(np.diff(good, prepend=~good[:1])).tolist()
    for start, stop in pairwise((*edges, len(rows))):
        if not good[start]:
            cache.write(rows[start:stop])
            continue
        for column, part in zip(found, _score_good(cache, rows[start:stop]), strict=True):
            column[start:stop] = part
    return found


def _score_good(cache: Cache, rows: NDArray[Any]) -> _Scores:
    next_id = cache.n_opened
    keys = unit(rows).astype(np.float32)
    nearest, novelty = cache.novelty(rows)
    slots = cache.write(rows)
    new, places = np.unique(slots, return_index=True)
    places = places[new >= next_id]  # rows that opened slots, in order
    if len(places):
        _compare_within(keys, places, slots, novelty, nearest)
    return _Scores(novelty, nearest, slots)


def _compare_within(keys: Keys, openers: Ints, slots: Ints, novelty: Floats, nearest: Ints) -> None:
    """Compare rows with the slots that earlier rows of the same chunk opened, too."""
    scores = keys @ keys[openers].T
    scores[openers[None] >= np.arange(len(keys))[:, None]] = -np.inf
    best = scores.max(axis=1)
    error = 2 * (keys.shape[1] + 16) * SINGLE
    for row in np.flatnonzero(1 - best < novelty + error):
        near = openers[scores[row] >= best[row] - error]
        squared = distances(keys[row], keys[near])
        found = min(float(squared.min()) / 2, 2.0)
        if found < novelty[row]:
            novelty[row], nearest[row] = found, slots[near[squared.argmin()]]
