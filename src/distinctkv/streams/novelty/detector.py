"""What was never seen before: a score for each record, and an alert if it is extraordinary."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...entry import faults
from ...memory import Cache
from ...policy import Concentration
from ..dedup.encoding import NGrams
from ..dedup.records import Encoder, Reader, RecordError, several, why
from . import saving, scoring
from .quantile import Quantile


@dataclass(frozen=True, slots=True)
class Known:
    """A thing that was seen before: how often and when, and what it was at first."""

    count: int
    first_seen: Any
    last_seen: Any
    record: Any


class Sighting(NamedTuple):
    """A record, how novel it was, and the known thing that was nearest to it."""

    number: int  # of the record, from 0
    novelty: float  # 1 - cosine to the nearest known thing; inf for the first record
    threshold: float  # the quantile of novelty in the recent past
    item: int | None  # id of the nearest known thing
    known: Known | None  # that thing as it was before this record

    @property
    def alert(self) -> bool:
        """Whether it is more novel than the threshold allows."""
        return self.novelty > self.threshold


class NoveltyDetector:
    """Scores each record by what came before it, then learns it: one pass, bounded if you wish.

    Records are those of `Deduplicator`; at least ``similarity`` alike they are one known thing.
    The threshold is the ``quantile`` of novelty over the last ``window`` records: of records like
    those before, a part of ``1 - quantile`` or less is alerted. With too few, none is.

    >>> detector = NoveltyDetector(quantile=0.9, window=50)
    >>> for n in range(40):
    ...     sighting = detector.add(f"door {n % 5} opened", at=f"10:{n:02}")
    >>> sighting = detector.add("disk is on fire", at="10:41")
    >>> sighting.alert, round(sighting.novelty, 2), sighting.known.record
    (True, 1.0, 'door 1 opened')
    >>> sighting.known.count, sighting.known.last_seen
    (8, '10:36')
    >>> detector
    NoveltyDetector(quantile=0.9, 6 known things, 41 records)
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
    ) -> None:
        """Start knowing nothing."""
        self._cache = Cache(Concentration.similar(similarity, budget))
        self._past = Quantile(quantile, window)
        self._reader = Reader(NGrams() if encode is None else encode, field)
        self._known: dict[int, Known] = {}

    def add(self, record: Any, at: Any = None) -> Sighting:  # noqa: ANN401
        """Score one record and learn it; ``at`` says when it came, or else its number does."""
        return self.add_many([record], [at])[0]

    def add_many(self, records: Iterable[Any], at: Iterable[Any] | None = None) -> list[Sighting]:
        """Score records and learn them, as one by one; if one is bad, none is learned."""
        given = [*several(records)]
        times = [None] * len(given) if at is None else [*at]
        if len(times) != len(given):
            raise ValueError(f"{len(times)} times do not fit {len(given)} records")
        first, scored = self.seen, scoring.learn(self._cache, self._rows(given))
        sightings = []
        for number, (record, when, *found) in enumerate(
            zip(given, times, *(column.tolist() for column in scored), strict=True), first
        ):
            sightings.append(self._sight(number, *found[:2]))
            self._note(found[2], record, number if when is None else when)
        self._forget()
        return sightings

    def score(self, records: Iterable[Any]) -> NDArray[np.float64]:
        """Novelty of records to what is known now; nothing is learned."""
        given = [*several(records)]
        return scoring.score(self._cache, self._rows(given))[1] if given else np.empty(0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all."""
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, encode: Encoder | None = None) -> Self:
        """What was saved; give the encoder again if it was one of yours."""
        return saving.load(cls, path, encode)

    @property
    def threshold(self) -> float:
        """What the next record must be more novel than to be alerted."""
        return self._past.threshold

    @property
    def known(self) -> dict[int, Known]:
        """The things known now, by id, oldest first."""
        return dict(sorted(self._known.items()))

    @property
    def seen(self) -> int:
        """Records so far."""
        return self._cache.seen

    @property
    def similarity(self) -> float:
        """From which on two records are one thing."""
        return 1 - self._cache.concentration.tau

    def __len__(self) -> int:
        """Things known now."""
        return len(self._cache)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        sizes = f"{len(self)} known things, {self.seen} records"
        return f"NoveltyDetector(quantile={self._past.share:g}, {sizes})"

    def _sight(self, number: int, novelty: float, nearest: int) -> Sighting:
        threshold = self._past.threshold
        if nearest < 0:
            return Sighting(number, inf, threshold, None, None)
        self._past.add(novelty)
        return Sighting(number, novelty, threshold, nearest, self._known[nearest])

    def _note(self, slot: int, record: Any, when: Any) -> None:  # noqa: ANN401
        known = self._known.get(slot)
        if known is None:
            self._known[slot] = Known(1, when, when, self._reader.held(record))
        else:
            self._known[slot] = replace(known, count=known.count + 1, last_seen=when)

    def _forget(self) -> None:
        """Drop what was evicted."""
        if len(self._known) > len(self._cache):
            live = self._cache.slots.ids.tolist()
            self._known = {slot: self._known[slot] for slot in live}

    def _rows(self, records: list[Any]) -> NDArray[Any]:
        """A row for each record; refuse the first that cannot be compared."""
        contents = []
        for place, record in enumerate(records):
            try:
                contents.append(self._reader.content(record))
            except RecordError as error:
                raise RecordError(f"record {self.seen + place}: {error}") from error
        rows = self._reader.rows(contents, self._cache.width)
        for place in np.flatnonzero(faults(rows, "cosine")).tolist():
            said = why(rows[place], contents[place], rows.shape[1])
            raise RecordError(f"record {self.seen + place} cannot be compared: {said}")
        return rows
