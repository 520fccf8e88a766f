"""A de-duplicator at work on files: it keeps its place, and may be killed at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from ...snapshot import SnapshotError
from ..files.headers import Header
from ..files.places import Place, Trail, find
from ..files.sources import Source
from ..files.unpacking import SourceError
from .deduplicator import Deduplicator
from .finding import Finder
from .forms import LONGEST, Csv, Form, Raw
from .guessing import check_columns
from .spots import Spot
from .verdict import Tally, Verdict

NOTE = "distinctkv dedup"  # what a job keeps in the note; other keys are not its own
CELL = 1 << 20  # bytes read at a time
RECORDS = 50_000  # between two saves; more if many are kept
PER_KEPT = 5
PAUSE = 5.0  # seconds between two saves of what comes slowly
TICK = 0.2
REMEMBERED = 1000  # texts whose place is kept


class Job:
    """The records of some files with their verdicts, and one file with all it takes to go on.

    ``written`` says how long the output is, if it can be cut back to that: after a kill the output
    is, too, what it would have been. The last record of a file, if no newline ends it, may be half
    written: with a state it comes after all others, and is read again the next time.
    """

    def __init__(
        self,
        paths: Sequence[str],
        seen: Deduplicator,
        *,
        form: str,
        field: str | None,
        state: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.seen, self.damages = seen, dict[str, str]()
        self.tally, self.output = Tally(), 0
        self.written: Callable[[], int] = lambda: 0
        self.passed = 0  # bytes read of all files, packed as they are
        self._paths, self._state, self._stop = paths, state, stop
        self.found = Finder(form, field)
        self.spot: Spot | None = None  # where the records of the last batch begin
        self._places: list[Place] = []
        self._left: list[Place] = []
        self._source: Source | None = None
        self._trail = Trail()
        self._aside: list[tuple[Form, bytes, Spot]] = []
        self._first_fault = ""
        self._over = False
        if NOTE in seen.note:
            self._restore(seen.note[NOTE])
        self.begun = self.tally.records > 0 or bool(self._places)  # by a run before
        if form == "csv":
            check_columns(paths, field or "", self.found.columns)
        self._saved, self._saved_at = self.tally.records, monotonic()

    def __iter__(self) -> Iterator[list[tuple[Raw, Verdict]]]:
        """Records with their verdicts, in batches; the batch before must have been written."""
        for path in self._paths:
            source, trail = find(Source(path), self._places)
            self._source, self._trail, self.spot = source, trail, Spot(source, trail.offset)
            try:
                for records in self._read(source, trail, self.spot):
                    yield self._judge(records)
                    self._save_if_due(live=not source.regular)
                    if self._stop():
                        return
            finally:
                source.close()
            if source.damage:
                self.damages[source.name] = source.damage
            self._left += [Place.of(source, trail)] if source.regular else []
            self.passed += source.passed
            self._source = None
        surely = self.tally.records
        if self._aside:
            self.save()
            self._over = True
        for form, held, spot in self._aside:
            self.spot = spot
            yield self._judge(form.cut(held, over=True)[0])
        if surely and self.hopeless:
            raise SourceError(self._complaint())

    @property
    def hopeless(self) -> bool:
        """Whether none of the records so far could be compared."""
        return 0 < self.tally.records == self.tally.bad

    @property
    def read(self) -> int:
        """Bytes of the files that were read so far."""
        return self.passed + (self._source.passed if self._source else 0)

    def save(self) -> None:
        """Write the state, if there is to be one; not after records that may be half written."""
        if self._state is None or self._over or self.hopeless:
            return
        source, found, stamp = self._source, self.found, self.found.stamp
        here = [Place.of(source, self._trail)] if source and source.regular else []
        self.output = self.written()
        self.seen.note[NOTE] = {
            "form": found.form,
            "field": found.field,
            "header": found.columns.decode("latin-1"),
            "stamp": "auto" if found.guessing else stamp and [stamp.pattern, stamp.fields],
            "places": [*self._places, *self._left, *here][-REMEMBERED:],
            "tally": asdict(self.tally),
            "output": self.output,
        }
        try:
            self.seen.save(self._state)
        except OSError as error:
            raise SnapshotError(f"cannot write {self._state}: {error.strerror}") from error
        self._saved, self._saved_at = self.tally.records, monotonic()

    def _read(self, source: Source, trail: Trail, spot: Spot) -> Iterator[list[Raw]]:
        """The records of a file, in batches; empty ones while waiting."""
        held, form, waited = b"", self.found.known(trail.offset), 0.0
        aside = self._state is not None and source.regular
        while True:
            piece = self._piece(source)
            held += piece or b""
            waited = inf if self._stop() else waited + TICK * (piece is None)
            if form is None:
                form = self.found.begin(held, source, over=piece == b"", waited=waited, whole=aside)
                if isinstance(form, Csv):
                    start = len(self.found.columns) + 1
                    trail.pass_by(held[:start])
                    held, spot.passed = held[start:], 1
            if form is None:
                yield []
                continue
            records, end = form.cut(held, over=False)
            passed = held.count(b"\n", 0, end)
            trail.pass_by(held[:end])
            held = held[end:]
            if len(held) > LONGEST:
                records.append(Raw(b"", None, passed, f"it is longer than {LONGEST:,} bytes"))
                held, passed = self._pass_over(source, trail, held), passed + 1
            yield records
            spot.passed += passed
            if piece == b"":
                break
        if not held:
            return
        if aside:
            self._aside.append((form, held, spot))
            return
        trail.pass_by(held)
        trail.end()
        yield form.cut(held, over=True)[0]

    def _pass_over(self, source: Source, trail: Trail, held: bytes) -> bytes:
        """Read to the end of a line that is too long; what comes after it."""
        while b"\n" not in held:
            trail.pass_by(held)
            held = source.read(CELL)
            if not held:
                return b""
        end = held.find(b"\n") + 1
        trail.pass_by(held[:end])
        return held[end:]

    def _piece(self, source: Source) -> bytes | None:
        """The next bytes; none at the end; None if there may be some later."""
        if source.regular:
            return source.fill(CELL - source.offset % CELL)
        return source.read(CELL) if source.ready(TICK) else None

    def _judge(self, records: list[Raw]) -> list[tuple[Raw, Verdict]]:
        """Give the records to the de-duplicator, the bad ones too: it counts them."""
        verdicts = self.seen.add_many([one.content for one in records])
        if not self.tally.records and verdicts and verdicts[0].bad and self.spot:
            line = self.spot.line + records[0].line
            self._first_fault = f"line {line} of {self.spot.file}: {fault(self.seen, records[0])}"
        tally = self.tally
        tally.records += len(verdicts)
        tally.kept += sum(verdict.kept for verdict in verdicts)
        tally.bad += sum(verdict.bad for verdict in verdicts)
        tally.dropped = tally.records - tally.kept - tally.bad
        return [*zip(records, verdicts, strict=True)]

    def _save_if_due(self, *, live: bool) -> None:
        new = self.tally.records - self._saved
        due = new >= max(RECORDS, PER_KEPT * len(self.seen))
        if due or (new and live and monotonic() - self._saved_at > PAUSE):
            self.save()

    def _complaint(self) -> str:
        """What is wrong with all records."""
        told = self.found.json.complaint() if self.found.form == "jsonl" else ""
        none = f"none of the {self.tally.records:,} records can be compared"
        return f"{told or none} ({self._first_fault})"

    def _restore(self, note: dict[str, Any]) -> None:
        try:
            found = self.found
            if (note["form"], note["field"]) != (found.form, found.field):
                raise SnapshotError(
                    f"the state {self._state} was begun with {note['form']} and the field "
                    f"{note['field']!r}; go on with those, or name another state"
                )
            self.tally = Tally.restore(note["tally"])
            found.columns = str(note["header"]).encode("latin-1")
            found.guessing = (stamp := note.get("stamp")) == "auto"
            found.stamp = Header.restore(*stamp) if isinstance(stamp, list) else None
            self.output = int(note["output"])
            self._places = [Place.restore(row) for row in note["places"]]
        except SnapshotError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the state {self._state} does not say how far it was ({error!r}); "
                "delete it to start anew"
            ) from error


def fault(seen: Deduplicator, record: Raw) -> str:
    """Why a record that was passed over cannot be compared."""
    return record.why or seen._reader.fault(record.content, seen._shelf.width)
