"""A de-duplicator: the rule with records for tokens, and kept records for slots."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from math import inf
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache, OnBad
from ..policy import Concentration, check_real
from . import saving
from .admitting import admitted
from .encoding import NGrams
from .records import Encoder, Reader, RecordError, several
from .shelf import Shelf
from .verdict import Verdict


class Deduplicator:
    """Keeps a record unless it is at least ``similarity`` like one that was kept before.

    A record is a text, a vector, or a mapping whose ``field`` is one of them. ``encode`` takes a
    list of texts (or of whatever your records hold) to an array with a row for each; the default
    needs no model. With a ``budget`` at most so many records are held, those that recur most.

    >>> seen = Deduplicator(similarity=0.7)
    >>> seen.add("the door is open").kept
    True
    >>> again = seen.add("the door is open!")
    >>> again.kept, again.of, again.record, round(again.similarity, 2)
    (False, 0, 'the door is open', 0.8)
    >>> [bool(verdict) for verdict in seen.add_many(["no such file", "the door is open"])]
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
        """Start empty; ``on_bad="skip"`` counts and passes over what cannot be compared.

        That is also a record on which your own ``encode`` fails, or that it gives another width.
        """
        if encode is not None and not callable(encode):
            raise TypeError(f"encode must be a function of a list of records, got {encode!r}")
        if field is not None and not isinstance(field, str):
            raise TypeError(f"field must be the name of a field, got {field!r}")
        # Usage is not forgotten: a budget is a target size, not a window.
        policy = Concentration.similar(similarity, budget, decay=1.0)
        self.similarity = float(similarity)
        self.note: dict[str, Any] = {}  # yours: JSON that is saved with it
        self._shelf = Shelf(Cache(policy, on_bad=on_bad))
        self._reader = Reader(NGrams() if encode is None else encode, field, on_bad)
        self._slots: dict[str, int] = {}  # of kept texts, if none of them is ever let go

    def add(self, record: Any) -> Verdict:  # noqa: ANN401
        """Take in one record."""
        number = self._shelf.seen
        content = self._content(record)
        if isinstance(content, str) and (slot := self._slots.get(content, -1)) >= 0:
            with self._shelf.whole:
                self._shelf.repeat(slot)
            return self._dropped(number, slot, 1.0)
        if content is None:
            return self.add_many([record])[0]
        row = self._reader.row(content, self._shelf.width)
        with self._shelf.whole:
            placed = self._shelf.place(row)
            if placed is not None and placed[1] is None:
                self._keep(placed[0], number, record)
        if placed is None:
            return self.add_many([record])[0]
        slot, similarity = placed
        if similarity is None:
            return Verdict(True, number)
        return self._dropped(number, slot, similarity)

    def add_many(self, records: Iterable[Any]) -> list[Verdict]:
        """Take in records, as one by one; if one of them is refused, none is taken in."""
        given = records if isinstance(records, np.ndarray) else [*several(records)]
        if len(given) == 0:
            return []
        rows = self._rows(given)
        with self._shelf.whole:
            verdicts = self._take(given, rows)
        if self._shelf.cache.on_bad == "skip":
            first = verdicts[0].number
            return [
                self._why(one, given[one.number - first], self._shelf.width) if one.bad else one
                for one in verdicts
            ]
        return verdicts

    def absorb(self, other: Deduplicator) -> list[Verdict]:
        """Take in what another has kept, as if its records had followed; what became of each."""
        if not isinstance(other, Deduplicator):
            raise TypeError(f"only a Deduplicator can be absorbed, got {type(other).__name__}")
        if other is self:
            raise ValueError("a de-duplicator cannot absorb itself; load it twice for that")
        if (ours := self._way) != (theirs := other._way):
            raise ValueError(
                f"both must compare records in one way: {ours} and {theirs}; "
                "for a lower similarity, see rethreshold"
            )
        saving.check_one(self._reader.encode, other._reader.encode)
        other._shelf.whole.check()
        with self._shelf.whole:
            return self._absorb(other)

    def _absorb(self, other: Deduplicator) -> list[Verdict]:
        numbers = [self.seen + number for number in other.numbers]
        placed = self._shelf.absorb(other._shelf)
        rows = zip(numbers, *(column.tolist() for column in placed), strict=True)
        verdicts = [
            Verdict(True, number) if opened else self._dropped(number, slot, similarity)
            for number, slot, opened, similarity in rows
        ]
        self._shelf.prune()
        return verdicts

    def rethreshold(self, similarity: float) -> Deduplicator:
        """Another that keeps less, made of the records kept here; this one stays as it is.

        Records that were dropped are not held and cannot come back: for a higher similarity, or
        for what a whole run at a lower one keeps, see `deduplicate`.
        """
        check_real("similarity", similarity)
        if similarity > self.similarity:
            raise ValueError(
                f"similarity must be at most {self.similarity:g}, got {similarity:g}, for records "
                "dropped before are not held; use deduplicate(records), or run again"
            )
        cache, reader = self._shelf.cache, self._reader
        other = Deduplicator(
            similarity,
            encode=reader.encode,
            field=reader.field,
            budget=cache.concentration.base,
            on_bad=cache.on_bad,
        )
        with other._shelf.whole:
            other._absorb(self)
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all; records must be texts or JSON-like."""
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, encode: Encoder | None = None) -> Self:
        """What was saved; give the encoder again if it was one of yours."""
        return saving.load(cls, path, encode)

    @property
    def kept(self) -> list[Any]:
        """The records held now, oldest first; vectors are as compared, of length one."""
        pairs = zip(self._shelf.cache.slots.keys, self._held(), strict=True)
        return [key if record is None else record for key, (_, record) in pairs]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the records held now, oldest first."""
        return [number for number, _ in self._held()]

    @property
    def counts(self) -> list[int]:
        """How many records each of those held now stands for, itself among them."""
        self._shelf.whole.check()
        return [int(count) for count in self._shelf.cache.slots.count]

    @property
    def seen(self) -> int:
        """Records offered so far."""
        return self._shelf.seen

    @property
    def skipped(self) -> int:
        """Records that were passed over as bad."""
        return self._shelf.cache.skipped

    @property
    def budget(self) -> float:
        """Records that may be held."""
        return self._shelf.cache.concentration.base

    @property
    def setting(self) -> dict[str, Any]:
        """How records are compared: the encoder, by name or by its sizes, and the field."""
        return saving.setting(self._reader)

    @property
    def nbytes(self) -> int:
        """Bytes held for the vectors of kept records; the records themselves come on top."""
        return self._shelf.cache.nbytes

    def __copy__(self) -> Self:
        """A de-duplicator of its own, with the same encoder, which may be a large model."""
        encode = self._reader.encode
        return copy.deepcopy(self, {id(encode): encode})

    def __len__(self) -> int:
        """Records held now."""
        return len(self._shelf.cache)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        policy = self._shelf.cache.concentration
        budget = f", budget {policy.base:g}" if policy.bounded else ""
        records = f"{len(self)} kept of {self.seen} records"
        return f"Deduplicator(similarity={self.similarity:g}{budget}, {records})"

    @property
    def _way(self) -> dict[str, Any]:
        return {"similarity": self.similarity, **self.setting}

    def _take(self, given: list[Any] | NDArray[Any], rows: NDArray[Any]) -> list[Verdict]:
        first, placed = self._shelf.seen, self._shelf.write(rows)
        verdicts = []
        for number, (record, slot, opened, similarity) in enumerate(
            zip(given, *(column.tolist() for column in placed), strict=True), first
        ):
            if opened:
                self._keep(slot, number, record)
                verdicts.append(Verdict(True, number))
            elif slot < 0:
                verdicts.append(Verdict(False, number))
            else:
                verdicts.append(self._dropped(number, slot, similarity))
        self._shelf.prune()
        return verdicts

    def _why(self, verdict: Verdict, record: Any, width: int | None) -> Verdict:  # noqa: ANN401
        """The verdict on a bad record, with what is wrong with it."""
        return verdict._replace(reason=self._reader.fault(record, width))

    def _held(self) -> list[tuple[int, Any]]:
        self._shelf.whole.check()
        self._shelf.prune()
        return [self._shelf.held[slot] for slot in sorted(self._shelf.held)]

    def _dropped(self, number: int, slot: int, similarity: float) -> Verdict:
        return Verdict(False, number, *self._shelf.held[slot], similarity)

    def _keep(self, slot: int, number: int, record: Any) -> None:  # noqa: ANN401
        held = self._reader.held(record)
        self._shelf.held[slot] = (number, held)
        if held is None or self._shelf.bounded:
            return
        plain = type(record) is str and self._reader.field is None
        content = record if plain else self._reader.content(record)
        if isinstance(content, str):
            self._slots[content] = slot

    def _content(self, record: Any) -> Any:  # noqa: ANN401
        """What is compared of a record; None of a bad one."""
        try:
            return self._reader.content(record)
        except RecordError:
            return None

    def _rows(self, records: list[Any] | NDArray[Any]) -> NDArray[Any]:
        return admitted(self._reader, self._shelf.cache, records)
