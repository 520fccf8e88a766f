"""A de-duplicator at work on files: it keeps its place, and may be killed at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ...snapshot import SnapshotError
from ..files.places import Place, Trail, find
from ..files.sources import Source
from ..files.unpacking import SourceError
from .deduplicator import Deduplicator
from .forms import LONGEST, Csv, Form, Json, Raw, Text
from .verdict import Verdict

NOTE = "distinctkv dedup"  # what a job keeps in the note; other keys are not its own
CELL = 1 << 20  # bytes read at a time
RECORDS = 50_000  # between two saves; more if many are kept
PER_KEPT = 5
PAUSE = 5.0  # seconds between two saves of what comes slowly
TICK = 0.2
REMEMBERED = 1000  # texts whose place is kept


@dataclass(slots=True)
class Tally:
    """Records by what became of them."""

    records: int = 0
    kept: int = 0
    dropped: int = 0
    bad: int = 0  # no record, no field, or nothing to compare

    @classmethod
    def restore(cls, saved: dict[str, int]) -> Tally:
        """What a state file kept."""
        tally = cls(**saved)
        if not all(isinstance(n, int) and n >= 0 for n in saved.values()):
            raise ValueError(f"records are counted by whole numbers, got {saved}")
        return tally


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
        self.header = b""  # of CSV, to be written before all records
        self.written: Callable[[], int] = lambda: 0
        self.passed = 0  # bytes read of all files, packed as they are
        self._paths, self._state, self._stop = paths, state, stop
        self._form, self._field = form, field
        self._places: list[Place] = []
        self._left: list[Place] = []
        self._source: Source | None = None
        self._trail = Trail()
        self._aside: list[tuple[Form, bytes]] = []
        self._over = False
        if NOTE in seen.note:
            self._restore(seen.note[NOTE])
        self._saved, self._saved_at = self.tally.records, monotonic()

    def __iter__(self) -> Iterator[list[tuple[Raw, Verdict]]]:
        """Records with their verdicts, in batches; the batch before must have been written."""
        for path in self._paths:
            source, trail = find(Source(path), self._places)
            self._source, self._trail = source, trail
            try:
                for records in self._read(source, trail):
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
        if self._aside:
            self.save()
            self._over = True
            yield self._judge(
                [one for form, held in self._aside for one in form.cut(held, over=True)[0]]
            )

    @property
    def begun(self) -> bool:
        """Whether a state was gone on from."""
        return self.tally.records > 0 or bool(self._places)

    @property
    def read(self) -> int:
        """Bytes of the files that were read so far."""
        return self.passed + (self._source.passed if self._source else 0)

    def save(self) -> None:
        """Write the state, if there is to be one; not after records that may be half written."""
        if self._state is None or self._over:
            return
        source = self._source
        here = [Place.of(source, self._trail)] if source and source.regular else []
        self.output = self.written()
        self.seen.note[NOTE] = {
            "form": self._form,
            "field": self._field,
            "header": self.header.decode("latin-1"),
            "places": [*self._places, *self._left, *here][-REMEMBERED:],
            "tally": asdict(self.tally),
            "output": self.output,
        }
        try:
            self.seen.save(self._state)
        except OSError as error:
            raise SnapshotError(f"cannot write {self._state}: {error.strerror}") from error
        self._saved, self._saved_at = self.tally.records, monotonic()

    def _read(self, source: Source, trail: Trail) -> Iterator[list[Raw]]:
        """The records of a file, in batches; empty ones while waiting."""
        held, form = b"", self._known_form(trail)
        while True:
            piece = self._piece(source)
            if piece is None:
                yield []
                continue
            held += piece
            if form is None:
                if not (form := self._begin(held, over=not piece, source=source)):
                    continue
                if isinstance(form, Csv):
                    start = len(self.header) + 1
                    trail.pass_by(held[:start])
                    held = held[start:]
            if not piece:
                break
            records, end = form.cut(held, over=False)
            trail.pass_by(held[:end])
            held = held[end:]
            if len(held) > LONGEST:
                records.append(Raw(b"", None))
                held = self._pass_over(source, trail, held)
            yield records
        if not held or form is None:
            return
        if self._state is not None and source.regular:
            self._aside.append((form, held))
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

    def _known_form(self, trail: Trail) -> Form | None:
        """How the records of a file are cut; None if its first bytes must say."""
        if self._form == "jsonl":
            return Json(self._field or "")
        if self._form == "text":
            return Text()
        return Csv(self._field or "", self.header) if trail.offset else None

    def _begin(self, held: bytes, *, over: bool, source: Source) -> Form | None:
        """The form of CSV from its header, once that is there; the same for all files."""
        if self._form == "auto" and (start := held.lstrip()[:1]):
            self._form = "jsonl" if start == b"{" else "csv"
        if self._form == "jsonl":
            return Json(self._field or "")
        line, newline, _ = held.partition(b"\n")
        if not newline and not over:
            return None
        if not line and over:
            return Text()
        form = Csv(self._field or "", line)
        if self.header and line.rstrip() != self.header.rstrip():
            raise SourceError(
                f"{source.name} has other columns than what came before; de-duplicate it apart"
            )
        self.header = line
        return form

    def _judge(self, records: list[Raw]) -> list[tuple[Raw, Verdict]]:
        """Give the records to the de-duplicator, the bad ones too: it counts them."""
        verdicts = self.seen.add_many([one.content for one in records])
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

    def _restore(self, note: dict[str, Any]) -> None:
        try:
            if (note["form"], note["field"]) != (self._form, self._field):
                raise SnapshotError(
                    f"the state {self._state} was begun with {note['form']} and the field "
                    f"{note['field']!r}; go on with those, or name another state"
                )
            self.tally = Tally.restore(note["tally"])
            self.header = str(note["header"]).encode("latin-1")
            self.output = int(note["output"])
            self._places = [Place.restore(row) for row in note["places"]]
        except SnapshotError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the state {self._state} does not say how far it was ({error!r}); "
                "delete it to start anew"
            ) from error
