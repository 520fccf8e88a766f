"""What was never seen before: a score for each record, and an alert if it is extraordinary."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from math import inf, nan
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache, OnBad
from ..dedup.encoders import Encoder, NGrams, check_same_encoder, describe_encoder
from ..dedup.records import Reader, several
from ..guard import UpdateGuard
from ..inputs import faults
from ..policy import Concentration
from . import saving, scoring
from .quantile import Quantile
from .things import Known, Moment, Sighting, Thing, check_time


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
        on_bad: OnBad = "raise",
    ) -> None:
        """Start knowing nothing; ``on_bad="skip"`` counts and passes over bad records.

        These are no alerts, and are not learned.
        """
        self._cache = Cache(Concentration.similar(similarity, budget), on_bad=on_bad)
        self._guard = UpdateGuard("detector")
        self._past = Quantile(quantile, window)
        self._reader = Reader(NGrams() if encode is None else encode, field, on_bad)
        self._things: dict[int, Thing] = {}

    def add(self, record: Any, at: Any = None) -> Sighting:  # noqa: ANN401
        """Score one record and learn it; ``at`` says when it came, or else its number does."""
        return self.add_many([record], [at])[0]

    def add_many(self, records: Iterable[Any], at: Iterable[Any] | None = None) -> list[Sighting]:
        """Score records and learn them, as one by one; if one is refused, none is learned."""
        given = [*several(records)]
        times = [None] * len(given) if at is None else [*at]
        if len(times) != len(given):
            raise ValueError(f"{len(times)} times do not fit {len(given)} records")
        if not given:
            return []
        for when in times:
            check_time(when)
        rows = self._reader.encode_batch(given, self._cache.width, self.seen)
        with self._guard:
            sightings = self._learn(given, times, rows)
        skip = self._cache.on_bad == "skip"
        return [*map(self._why, sightings, given)] if skip else sightings

    def score(self, records: Iterable[Any]) -> NDArray[np.float64]:
        """Novelty of records to what is known now; nothing is learned.

        One text, or one mapping, is taken as one record. The novelty of a bad record that may be
        passed over is nan.
        """
        self._guard.check()
        given = [records] if isinstance(records, str | bytes | Mapping) else [*several(records)]
        found = np.full(len(given), nan)
        if given:
            rows = self._reader.encode_batch(given, self._cache.width, self.seen)
            good = ~faults(rows, "cosine")
            found[good] = self._cache.novelty(rows[good])[1] if good.any() else nan
        return found

    def absorb(self, other: NoveltyDetector) -> list[int]:
        """Take in what another knows, as if its records had followed; the id here of each thing.

        Counts add up. The threshold is that of the last records of both, each as novel as it was
        where it came: what was new to the other counts as new, even if it is known here. Numbers of
        records go on from ours; times that were given stay as they are.
        """
        if other is self:
            raise ValueError("a detector cannot absorb itself; load it twice for that")
        if (ours := self.setting) != (theirs := other.setting):
            raise ValueError(f"both must compare and alert in one way: {ours} and {theirs}")
        check_same_encoder(self._reader.encode, other._reader.encode)
        other._guard.check()
        self._cache.check_absorb(other._cache)
        with self._guard:
            return self._absorb(other)

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
        self._guard.check()
        return {slot: thing.known for slot, thing in sorted(self._things.items())}

    @property
    def seen(self) -> int:
        """Records so far."""
        return self._cache.seen

    @property
    def skipped(self) -> int:
        """Records that were passed over as bad."""
        return self._cache.skipped

    @property
    def similarity(self) -> float:
        """From which on two records are one thing."""
        return 1 - self._cache.concentration.tau

    @property
    def setting(self) -> dict[str, Any]:
        """How records are compared, and when they are alerted."""
        past = {"quantile": self._past.share, "window": self._past.window}
        return {
            "similarity": self.similarity,
            **past,
            "encode": describe_encoder(self._reader.encode),
            "field": self._reader.field,
        }

    def __copy__(self) -> Self:
        """A detector of its own, with the same encoder, which may be a large model."""
        encode = self._reader.encode
        return copy.deepcopy(self, {id(encode): encode})

    def __len__(self) -> int:
        """Things known now."""
        return len(self._cache)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        sizes = f"{len(self)} known things, {self.seen} records"
        return f"NoveltyDetector(quantile={self._past.share:g}, {sizes})"

    def _learn(self, given: list[Any], times: list[Any], rows: NDArray[Any]) -> list[Sighting]:
        first, scored = self.seen, scoring.learn(self._cache, rows)
        sightings = []
        for number, (record, when, novelty, nearest, slot) in enumerate(
            zip(given, times, *(column.tolist() for column in scored), strict=True), first
        ):
            sightings.append(self._sight(number, novelty, nearest))
            if slot >= 0:
                self._note(slot, record, Moment(number, when))
        self._forget()
        return sightings

    def _sight(self, number: int, novelty: float, nearest: int) -> Sighting:
        threshold = self._past.threshold
        if nearest < 0:
            return Sighting(number, novelty, threshold, None, None)
        self._past.add(novelty)
        return Sighting(number, novelty, threshold, nearest, self._things[nearest].known)

    def _note(self, slot: int, record: Any, moment: Moment) -> None:  # noqa: ANN401
        thing = self._things.get(slot)
        if thing is None:
            self._things[slot] = Thing(1, moment, moment, self._reader.held(record))
        else:
            self._things[slot] = thing.again(moment)

    def _absorb(self, other: NoveltyDetector) -> list[int]:
        offset, things = self.seen, [thing for _, thing in sorted(other._things.items())]
        ids: list[int] = self._cache.absorb(other._cache).tolist()
        moved = [thing.after(offset) for thing in things]
        for slot, thing in zip(ids, moved, strict=True):
            ours = self._things.get(slot)
            if ours is None:
                self._things[slot] = thing
            else:
                last = max(ours.last, thing.last, key=lambda one: one.number)
                self._things[slot] = ours.again(last, thing.count)
        self._past.absorb(other._past)
        self._forget()
        return ids

    def _forget(self) -> None:
        """Drop what was evicted."""
        if len(self._things) > len(self._cache):
            live = self._cache.ids.tolist()
            self._things = {slot: self._things[slot] for slot in live}

    def _why(self, sighting: Sighting, record: Any) -> Sighting:  # noqa: ANN401
        """A sighting, with what is wrong with a bad record."""
        if not sighting.bad:
            return sighting
        return sighting._replace(reason=self._reader.fault(record, self._cache.width))
