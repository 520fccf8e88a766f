"""A de-duplicator at work on files: it keeps its place, and may be killed at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from ..logs.headers import Header
from ..logs.known import Known
from ..logs.places import Place, Trail, latest
from ..logs.sources import Source, arrived, open_early
from ..logs.unpacking import SourceError
from .cutting import TICK, Aside, batches
from .deduplicator import Deduplicator
from .finding import Finder
from .forms import Raw
from .guessing import check_columns
from .reasons import Reasons
from .spots import Spot
from .states import NOTE, fresh, restoring, resumes, write_state
from .verdict import Tally, Verdict
from .written import Written

RECORDS = 50_000  # between two saves; more if many are kept
PER_KEPT = 5
PAUSE = 5.0  # seconds between two saves of what comes slowly


class Job:
    """The records of some files with their verdicts, and one file with all it takes to go on.

    ``written`` says what is in the output, if that can be cut back to it: after a kill the output
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
        self.tally, self.reasons = Tally(), Reasons()
        self.output: Written | None = None  # of this run, or of one before if this has none
        self.written: Callable[[], Written | None] = lambda: self.output
        self.saved = False  # in this run
        self.waits: str | None = None  # a pipe to which nobody writes yet
        self.passed = 0  # bytes read of all files, packed as they are
        self._paths, self._state, self._stop = paths, state, stop
        self.found = Finder(form, field)
        self.spot: Spot | None = None  # where the records of the last batch begin
        self._places = Known(())
        self._left: list[Place] = []
        self._files = dict[str, int]()  # by their names, for people: how far they were read
        self._source: Source | None = None
        self._trail = Trail()
        self._aside: list[Aside] = []
        self._first_fault = ""
        self._over = False
        self._fresh = fresh(seen, state)
        if NOTE in seen.note:
            self._restore(seen.note[NOTE])
        self.begun = self.tally.records > 0 or any(self._places)  # by a run before
        if form == "csv":
            check_columns(paths, field or "", self.found.columns)
        self._saved, self._saved_at = self.tally.records, monotonic()

    def __iter__(self) -> Iterator[list[tuple[Raw, Verdict]]]:
        """Records with their verdicts, in batches; the batch before must have been written."""
        for path in self._paths:
            file = open_early(path)
            yield from self._await(path, file)
            if self.waits is not None:
                return
            source, trail = self._places.find(Source(path, file))
            self._source, self._trail, self.spot = source, trail, Spot(source, trail.offset)
            aside = self._aside if self._state is not None and source.regular else None
            try:
                for records in batches(source, trail, self.spot, self.found, self._stop, aside):
                    yield self._judge(records)
                    self._save_if_due(live=not source.regular)
                    if self._stop():
                        return
            finally:
                source.close()
            if source.damage:
                self.damages[source.name] = source.damage
            self._left += [Place.of(source, trail)] if source.regular else []
            self._name_place()
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

    def _await(self, path: str, file: BinaryIO) -> Iterator[list[tuple[Raw, Verdict]]]:
        """Empty batches until a pipe has something to read; ``waits`` stays if it is given up."""
        while not arrived(file, TICK):
            self.waits = "standard input" if path == "-" else path
            yield []
            if self._stop():
                return
        self.waits = None

    @property
    def hopeless(self) -> bool:
        """Whether none of the records so far could be compared."""
        return 0 < self.tally.records == self.tally.bad

    @property
    def read(self) -> int:
        """Bytes of the files that were read so far."""
        return self.passed + (self._source.passed if self._source else 0)

    @property
    def keeps(self) -> bool:
        """Whether there is a state."""
        return self._state is not None

    def claim(self, output: Written) -> None:
        """Let the state say that an output is its own, before anything is written to it."""
        self.output = output
        self.seen.note[NOTE] = {**self.seen.note.get(NOTE, {}), "output": output}
        write_state(self.seen, self._state)

    def disclaim(self) -> bool:
        """Take a state back that says no more than that; whether it was one."""
        if self._state is None or self.saved or not self._fresh:
            return False
        self._state.unlink(missing_ok=True)
        return True

    def save(self) -> None:
        """Write the state, if there is to be one; not after records that may be half written."""
        if self._state is None or self._over or self.hopeless or self.found.form == "auto":
            return
        source, found, stamp = self._source, self.found, self.found.stamp
        here = [Place.of(source, self._trail)] if source and source.regular else []
        self.output = self.written()
        self._name_place()
        self.seen.note[NOTE] = {
            "form": found.form,
            "field": found.field,
            "header": found.columns.decode("latin-1"),
            "stamp": "auto" if found.guessing else stamp and [stamp.pattern, stamp.fields],
            "places": latest([*self._places, *self._left, *here], len(self._paths)),
            "tally": asdict(self.tally),
            "files": dict(latest([*self._files.items()], len(self._paths))),
            "output": self.output,
        }
        write_state(self.seen, self._state)
        self.saved, self._saved, self._saved_at = True, self.tally.records, monotonic()

    def _name_place(self) -> None:
        """Note how far the file is read that is open."""
        if self._source is not None and self._source.regular:
            name = os.path.abspath(self._source.path)
            self._files.pop(name, None)  # the last one comes last
            self._files[name] = self._trail.offset

    def _judge(self, records: list[Raw]) -> list[tuple[Raw, Verdict]]:
        """Give the records to the de-duplicator, the bad ones too: it counts them."""
        verdicts = self.seen.add_many([one.content for one in records])
        judged, tally = [*zip(records, verdicts, strict=True)], replace(self.tally)
        self.tally.count(verdicts)
        if self.tally.bad == tally.bad:
            return judged
        judged = [(one, told._replace(reason=one.why) if one.why else told) for one, told in judged]
        self.reasons.add_all(told.reason for _, told in judged if told.reason)
        record, first = judged[0]
        if not tally.records and first.bad and self.spot:
            line = self.spot.line + record.line
            self._first_fault = f"line {line} of {self.spot.file}: {first.reason}"
        return judged

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
        with restoring(self._state):
            self.output = Written.restore(note.get("output"))
            found = self.found
            if not resumes(note, found.form, found.field, self._state):
                return
            self.tally = Tally.restore(note["tally"])
            found.columns = str(note["header"]).encode("latin-1")
            found.guessing = (stamp := note.get("stamp")) == "auto"
            found.stamp = Header.restore(*stamp) if isinstance(stamp, list) else None
            self._files = {str(name): int(offset) for name, offset in note.get("files", {}).items()}
            self._places = Known(Place.restore(row) for row in note["places"])
