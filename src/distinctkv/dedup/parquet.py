"""Parquet to Parquet: to one file or, with a state, to a folder of parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..extras import install
from ..logs.unpacking import SourceError
from . import columns
from .deduplicator import Deduplicator
from .job import PER_KEPT
from .parts import Folder, Part
from .reasons import Reasons
from .states import NOTE, fresh, restoring, resumes, write_state
from .verdict import Tally, Verdict

ROWS = 8192
PART = 1 << 20  # rows read after which a part ends, and the state is saved; more if many are kept
Batch = list[tuple[Any, Verdict]]


class Tables:
    """The rows of Parquet files with their verdicts; those that are kept are written to Parquet.

    Without a state there is one output, whole or not at all. With one the output is a folder of
    parts; after each the state says how far it is. Where a part ends follows from the state and
    the rows alone, so that a run that was killed ends with the parts of one that was not.
    """

    def __init__(
        self,
        paths: Sequence[str],
        field: str,
        seen: Deduplicator,
        output: Path,
        *,
        state: Path | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.seen, self.tally, self.read = seen, Tally(), 0
        self.reasons, self.output = Reasons(), output
        self.spot = ("", 0)  # the file of the last batch, and the rows before it
        self.dropped = False  # what was read, for it was stopped and has no state
        self._paths, self._field = paths, field
        self._state, self._stop = state, stop
        self._columns: str | None = None
        self._done = dict[str, list[int]]()  # size, time and rows read of each file
        self._at = [0, 0, 0]  # that of the file that is open
        self._folder = Folder(output, token_hex(8) if state else "", 0)
        self._fresh, self._saved = fresh(seen, state), False
        if NOTE in seen.note:
            self._restore(seen.note[NOTE])
        self._before = replace(self.tally)  # what the output stands for

    def __iter__(self) -> Iterator[Batch]:
        """Values of the field with their verdicts, in batches."""
        try:
            import pyarrow
        except ImportError as error:
            raise SourceError(f"to read Parquet, {install('scale')}") from error
        schema = columns.common(self._paths, self._field, self._columns)
        self._columns = columns.told(schema)
        made = self._claim()
        part = self._begin(schema)
        try:
            for rows in self._batches():
                while rows.num_rows and not self._stop():
                    piece = rows.slice(0, self._limit - part.taken)
                    yield self._judge(piece, part)
                    rows = rows.slice(piece.num_rows)
                    if part.taken >= self._limit:
                        self._finish(part)
                        part = self._begin(schema)
            self._end(part)
        except (pyarrow.ArrowException, OSError) as error:
            said = f"cannot take Parquet from {', '.join(self._paths)} to {self.output}: {error}"
            raise SourceError(said) from error
        finally:
            part.abandon()
            self._disclaim(made)

    def _batches(self) -> Iterator[Any]:
        """Rows of all files that are not done yet; one file is open at a time."""
        for path in self._paths:
            place = self._place(path)
            with columns.opened(path) as file:
                for rows in _pieces(file, place[2]):
                    if self._stop():
                        return
                    self.spot, self._at = (path, place[2]), place
                    yield columns.without_views(rows)
                    self.read += rows.num_rows * place[0] // file.metadata.num_rows

    def _judge(self, rows: Any, part: Part) -> Batch:  # noqa: ANN401
        """Verdicts of some rows; those that are kept go to the part."""
        values = rows.column(self._field).to_pylist()
        verdicts = self.seen.add_many(values)
        part.take(rows, [one.kept for one in verdicts])
        self.spot = (self.spot[0], self._at[2])
        self._at[2] += len(values)
        judged, bad = [*zip(values, verdicts, strict=True)], self.tally.bad
        self.tally.count(verdicts)
        if self.tally.bad > bad:
            self.reasons.add_all(one.reason for one in verdicts if one.reason)
        return judged

    def _begin(self, schema: Any) -> Part:  # noqa: ANN401
        """The next part, and after how many rows it ends."""
        if self._state is None:
            self._limit = 1 << 62
            return Part(self.output, schema, "")
        self._limit = max(PART, PER_KEPT * len(self.seen))
        return Part(self._folder.target, schema, self._folder.job)

    def _end(self, part: Part) -> None:
        """Finish the last part; without a state, only if all was read."""
        if self._state is None and self._stop():
            self.tally, self.dropped = self._before, True
        elif self._state is None or part.taken:
            self._finish(part)

    def _finish(self, part: Part) -> None:
        """Put a part in its place, and note how far that is."""
        _check_some(self.seen)
        if self._state is None or not part.empty:
            part.commit()
            self._folder.parts += 1
        if self._state is None:
            return
        self.seen.note[NOTE] = {
            "form": "parquet",
            "field": self._field,
            "columns": self._columns,
            "tally": asdict(self.tally),
            "job": self._folder.job,
            "folder": str(self.output.resolve()),
            "parts": self._folder.parts,
            "read": self._done,
        }
        write_state(self.seen, self._state)
        self._saved = True

    def _claim(self) -> bool:
        """Let the state say that the folder is its own; whether the folder was made for it."""
        if self._state is None:
            return False
        self._folder.check()
        if NOTE not in self.seen.note or "job" not in self.seen.note[NOTE]:
            self.seen.note[NOTE] = {"job": self._folder.job, "folder": str(self.output.resolve())}
            write_state(self.seen, self._state)
        made = not self.output.exists()
        self._folder.make()
        return made

    def _disclaim(self, made: bool) -> None:
        """Take a state back that says no more than that, and the folder if it is empty."""
        if self._fresh and not self._saved and self._state is not None:
            self._state.unlink(missing_ok=True)
            with suppress(OSError):
                if made:
                    self.output.rmdir()

    def _place(self, path: str) -> list[int]:
        """Size, time and rows read of a file; a file that was written anew is another one."""
        seen, name = os.stat(path), os.path.abspath(path)
        if self._done.get(name, [])[:2] != [seen.st_size, seen.st_mtime_ns]:
            self._done[name] = [seen.st_size, seen.st_mtime_ns, 0]
        return self._done[name]

    def _restore(self, note: dict[str, Any]) -> None:
        with restoring(self._state):
            self._folder.job = str(note.get("job", self._folder.job))
            if not resumes(note, "parquet", self._field, self._state):
                return
            self.tally, self._columns = Tally.restore(note["tally"]), str(note["columns"])
            self._folder.job, self._folder.parts = str(note["job"]), int(note["parts"])
            self._done = {str(name): [*map(int, place)] for name, place in note["read"].items()}


def _pieces(file: Any, skip: int) -> Iterator[Any]:  # noqa: ANN401
    """Batches of rows after those that are done."""
    groups = [*range(file.num_row_groups)]
    while groups and skip >= (size := file.metadata.row_group(groups[0]).num_rows):
        skip, groups = skip - size, groups[1:]
    for batch in file.iter_batches(ROWS, row_groups=groups) if groups else ():
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


def _check_some(seen: Deduplicator) -> None:
    """Refuse to write nothing of something."""
    if 0 < seen.seen == seen.skipped:
        raise SourceError(
            f"none of the {seen.seen:,} records can be compared; all are empty or bad"
        )
