"""De-duplication: the rule of the cache with records for tokens, and kept records for slots."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .. import snapshot
from ..cache import Cache, OnBad
from ..guard import UpdateGuard
from ..inputs import faults
from ..policy import Concentration
from ..slots import Ints
from .encoders import Encoder, NGrams, check_same_encoder, describe_encoder, restore_encoder
from .records import RecordEncoder, as_records

KIND = "deduplicator"


class Decision(NamedTuple):
    """Whether a record is kept; if not, which kept record it repeats, and how similar it is.

    It is true if the record is kept: ``if seen.add(record): ...``. Records are numbered from 0 in
    the order in which they came. A bad record that was skipped is not kept, repeats none, and has a
    ``reason``.
    """

    kept: bool
    number: int
    of: int | None = None  # number of the kept record that it repeats
    record: Any = None  # that kept record; None if it was a vector
    similarity: float | None = None  # cosine of the two, at least the threshold
    reason: str | None = None  # why a bad record could not be compared

    def __bool__(self) -> bool:
        return self.kept

    @property
    def bad(self) -> bool:
        """Whether the record could not be compared."""
        return not self.kept and self.of is None


class Deduplicator:
    """Keeps a record unless its cosine to a kept record is at least ``similarity``.

    A record is a text, a vector, or a mapping whose ``field`` is one of them. ``encode`` takes a
    list of texts (or of whatever your records hold) to an array with a row for each; the default
    needs no model. With a ``budget`` at most so many records are held, those that recur most.

    >>> seen = Deduplicator(similarity=0.7)
    >>> seen.add("the door is open").kept
    True
    >>> again = seen.add("the door is open!")
    >>> again.kept, again.of, again.record, round(again.similarity, 2)
    (False, 0, 'the door is open', 0.8)
    >>> [bool(decision) for decision in seen.add_many(["no such file", "the door is open"])]
    [True, False]
    >>> seen
    Deduplicator(similarity=0.7, 2 kept of 4 records)
    """

    def __init__(
        self,
        similarity: float = 0.9,
        *,
        encode: Encoder | None = None,
        field: str | None = None,
        budget: float = inf,
        on_bad: OnBad = "raise",
    ) -> None:
        """Start empty; ``on_bad="skip"`` counts and skips records that cannot be compared.

        These include records on which your ``encode`` fails or returns a row of another width.
        """
        # Usage does not decay: a budget is a target size, not a window.
        policy = Concentration.similar(similarity, budget, decay=1.0)
        self.similarity = float(similarity)
        self._cache = Cache(policy, on_bad=on_bad)
        self._encoder = RecordEncoder(NGrams() if encode is None else encode, field, on_bad)
        self._records: dict[int, tuple[int, Any]] = {}  # slot -> number and record
        self.note: dict[str, Any] = {}  # JSON of the caller, saved with the de-duplicator
        self._guard = UpdateGuard("de-duplicator")

    def add(self, record: Any) -> Decision:  # noqa: ANN401
        """Add one record."""
        return self.add_many([record])[0]

    def add_many(self, records: Iterable[Any]) -> list[Decision]:
        """Add records, as one by one; if one of them raises an error, none is added."""
        given = records if isinstance(records, np.ndarray) else [*as_records(records)]
        if len(given) == 0:
            return []
        first = self.seen
        rows = self._encoder.encode_batch(given, self._cache.width, first)
        similarity = np.empty(len(rows))
        with self._guard:
            next_id = self._cache.n_opened
            slots = self._cache.write(rows, similarity_out=similarity)
            decisions = self._decide(range(first, self.seen), given, slots, similarity, next_id)
            self._drop_evicted()
        return [
            self._with_reason(one, given[one.number - first], self._cache.width) if one.bad else one
            for one in decisions
        ]

    def absorb(self, other: Deduplicator) -> list[Decision]:
        """Merge what another has kept, as if its records had followed; a decision on each."""
        if other is self:
            raise ValueError("a de-duplicator cannot absorb itself; load it twice for that")
        ours = {"similarity": self.similarity, **self.setting}
        theirs = {"similarity": other.similarity, **other.setting}
        if ours != theirs:
            raise ValueError(
                f"both must compare records in one way: {ours} and {theirs}; "
                "for a lower similarity, see rethreshold"
            )
        check_same_encoder(self._encoder.encode, other._encoder.encode)
        return self._absorb(other)

    def rethreshold(self, similarity: float) -> Deduplicator:
        """A new one of the records kept here, at a lower similarity; this one does not change.

        Dropped records are not held. For a higher similarity, or for what a run over all records at
        a lower one keeps, see `deduplicate`.
        """
        if similarity > self.similarity:
            raise ValueError(
                f"similarity must be at most {self.similarity:g}, got {similarity:g}: records "
                "dropped before are not held; use deduplicate(records), or run again"
            )
        other = Deduplicator(
            similarity,
            encode=self._encoder.encode,
            field=self._encoder.field,
            budget=self.budget,
            on_bad=self.on_bad,
        )
        other.note = dict(self.note)
        other._absorb(self)
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file atomically; records must be texts or JSON-like."""
        records = [*self._held()]
        tensors, state = self._cache.state()
        try:
            texts = json.dumps(records).encode()
        except (TypeError, ValueError) as error:
            raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
        tensors["records"] = np.frombuffer(texts, np.uint8)
        kept = {"similarity": self.similarity, "cache": state, "note": self.note}
        snapshot.save(path, KIND, tensors, kept | self.setting)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, encode: Encoder | None = None) -> Self:
        """What was saved; give ``encode`` again if it was your own."""
        tensors, state = snapshot.load(path, KIND)
        try:
            records = json.loads(tensors.pop("records").tobytes())
            cache = Cache.from_state(tensors, state["cache"])
            policy = cache.concentration
            seen = cls(
                state["similarity"],
                encode=restore_encoder(state["encode"], encode),
                field=state["field"],
                budget=policy.base,
                on_bad=cache.on_bad,
            )
            if seen._cache.concentration != policy or cache.metric != "cosine":
                raise ValueError(f"a similarity of {seen.similarity} and {policy}")
            seen._cache, seen._records = cache, _by_slot(cache, records)
            seen.note = dict(state["note"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise snapshot.SnapshotError(
                f"{path} does not describe a de-duplicator: {error!r}"
            ) from error
        return seen

    @property
    def kept(self) -> list[Any]:
        """The records held now, oldest first; vectors as compared, of length one."""
        pairs = zip(self._cache.slots.keys, self._held(), strict=True)
        return [key if record is None else record for key, (_, record) in pairs]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the records held now, oldest first."""
        return [number for number, _ in self._held()]

    @property
    def counts(self) -> list[int]:
        """How many records each record held now represents, itself included."""
        self._guard.check()
        return [int(count) for count in self._cache.slots.count]

    @property
    def seen(self) -> int:
        """Records added so far."""
        return self._cache.seen

    @property
    def skipped(self) -> int:
        """Bad records that were skipped."""
        return self._cache.skipped

    @property
    def budget(self) -> float:
        """Records that may be held."""
        return self._cache.concentration.base

    @property
    def on_bad(self) -> OnBad:
        """Whether a record that cannot be compared is an error or skipped."""
        return self._cache.on_bad

    @property
    def setting(self) -> dict[str, Any]:
        """How records are compared: the encoder, by name or by its sizes, and the field."""
        return {"encode": describe_encoder(self._encoder.encode), "field": self._encoder.field}

    @property
    def nbytes(self) -> int:
        """Bytes allocated for the vectors of kept records, without the records themselves."""
        return self._cache.nbytes

    def __copy__(self) -> Self:
        """A deep copy, with the same encoder, which may be a large model."""
        encode = self._encoder.encode
        return copy.deepcopy(self, {id(encode): encode})

    def __len__(self) -> int:
        """Records held now."""
        return len(self._cache)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        budget = f", budget {self.budget:g}" if self.budget < inf else ""
        records = f"{len(self)} kept of {self.seen} records"
        return f"Deduplicator(similarity={self.similarity:g}{budget}, {records})"

    def _absorb(self, other: Deduplicator) -> list[Decision]:
        offset, held = self.seen, other._held()
        numbers = [offset + number for number, _ in held]
        self._cache.check_absorb(other._cache)
        similarity = np.empty(len(other))
        with self._guard:
            next_id = self._cache.n_opened
            slots = self._cache.absorb(other._cache, similarity_out=similarity)
            records = [record for _, record in held]
            decisions = self._decide(numbers, records, slots, similarity, next_id, read=False)
            self._drop_evicted()
        return decisions

    def _decide(
        self,
        numbers: Iterable[int],
        records: Iterable[Any],
        slots: Ints,
        similarity: NDArray[np.float64],
        next_id: int,
        *,
        read: bool = True,
    ) -> list[Decision]:
        """Decisions on records by their slots; those from ``next_id`` on were opened by them."""
        # Decisions are exact; a cosine of a repeat may be rounded to just below the threshold.
        similarity = np.maximum(similarity, 1 - self._cache.concentration.tau)
        decisions = []
        columns = (numbers, records, slots.tolist(), similarity.tolist())
        for number, record, slot, similar in zip(*columns, strict=True):
            if slot < 0:
                decisions.append(Decision(False, number))
            elif slot >= next_id and slot not in self._records:
                held = self._encoder.stored(record) if read else record
                self._records[slot] = (number, held)
                decisions.append(Decision(True, number))
            else:
                decisions.append(Decision(False, number, *self._records[slot], similar))
        return decisions

    def _with_reason(self, decision: Decision, record: Any, width: int | None) -> Decision:  # noqa: ANN401
        """The decision on a bad record, with what is wrong with the record."""
        return decision._replace(reason=self._encoder.describe_fault(record, width))

    def _held(self) -> list[tuple[int, Any]]:
        """Numbers and records held now, oldest first."""
        self._guard.check()
        self._drop_evicted(share=0)
        return [record for _, record in sorted(self._records.items())]

    def _drop_evicted(self, share: float = 1 / 8) -> None:
        """Drop records of evicted slots, once they are more than this share of those held."""
        if len(self._records) > len(self._cache) * (1 + share):
            held = self._cache.ids.tolist()
            self._records = {slot: self._records[slot] for slot in held}


def _by_slot(cache: Cache, records: list[Any]) -> dict[int, tuple[int, Any]]:
    """The saved records by their slots; raise if they do not fit."""
    ids = cache.ids.tolist()
    rows = [(int(number), record) for number, record in records]
    if len(rows) != len(ids) or not all(0 <= number < cache.seen for number, _ in rows):
        raise ValueError(f"{len(rows)} records for {len(ids)} slots")
    return dict(zip(ids, rows, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Deduplication:
    """The decisions on a list of records; their vectors are held for another similarity."""

    similarity: float
    records: list[Any]
    decisions: list[Decision]  # one for each record
    rows: NDArray[Any]

    @property
    def kept(self) -> list[Any]:
        """Records that were kept, in order."""
        return [self.records[decision.number] for decision in self.decisions if decision.kept]

    @property
    def dropped(self) -> list[tuple[Any, Decision]]:
        """The other records, each with the reason: `Decision.of` and `Decision.similarity`."""
        return [(self.records[one.number], one) for one in self.decisions if not one.kept]

    def rethreshold(self, similarity: float) -> Deduplication:
        """The same at another similarity, higher or lower; nothing is encoded again."""
        bad = {one.number: one for one in self.decisions if one.bad}
        seen = Deduplicator(similarity, on_bad="skip")  # bad records were raised or skipped before
        decisions = [
            bad.get(one.number, one)
            if one.of is None
            else one._replace(record=self.records[one.of])
            for one in seen.add_many(self.rows)
        ]
        return Deduplication(float(similarity), self.records, decisions, self.rows)


def deduplicate(
    records: Iterable[Any],
    similarity: float = 0.9,
    *,
    encode: Encoder | None = None,
    field: str | None = None,
    on_bad: OnBad = "raise",
) -> Deduplication:
    """Separate the records to keep from those that repeat one of them.

    With ``on_bad="skip"`` records that cannot be compared are dropped as well, with their reason.

    >>> found = deduplicate(["the door is open", "the door is open!", "no such file"], 0.7)
    >>> found.kept
    ['the door is open', 'no such file']
    >>> [(record, one.of, round(one.similarity, 2)) for record, one in found.dropped]
    [('the door is open!', 0, 0.8)]
    >>> len(found.rethreshold(0.9).kept)
    3
    """
    given = [*as_records(records)]
    encoder = RecordEncoder(NGrams() if encode is None else encode, field, on_bad)
    rows = encoder.encode_batch(given, None, 0) if given else np.empty((0, 1))
    bad = [
        Decision(False, number, reason=encoder.describe_fault(given[number], rows.shape[1]))
        for number in np.flatnonzero(faults(rows, "cosine")).tolist()
    ]
    return Deduplication(float(similarity), given, bad, rows).rethreshold(similarity)
