"""De-duplicate the records of files: read them, decide on each, count what became of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast

from ..compression import DamagedFileError, check_not_utf16
from . import formats
from .deduplicator import Decision, Deduplicator
from .formats import Batch, Csv, Format, FormatError, Parquet, Text

NOTE = "distinctkv dedup"  # the key of `Job.setting` in the note of a de-duplicator
MOST_REASONS = 1000  # rejected records whose reason is counted


@dataclass(slots=True)
class Tally:
    """Records by what became of them."""

    records: int = 0
    kept: int = 0
    duplicates: int = 0
    rejected: int = 0  # no record, no field, or nothing to compare

    def count(self, decisions: Sequence[Decision]) -> None:
        """Count some more."""
        self.records += len(decisions)
        self.kept += sum(decision.kept for decision in decisions)
        self.rejected += sum(decision.bad for decision in decisions)
        self.duplicates = self.records - self.kept - self.rejected


class Job:
    r"""The records of files in batches, each record with the decision on it.

    Without a ``form`` the first file says what format all of them have. ``stop`` ends the job
    early, after a whole record.

    >>> from pathlib import Path; from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "rows.jsonl")
    >>> _ = path.write_text('{"text": "a door"}\n{"text": "a door"}\n')
    >>> job = Job([str(path)], Deduplicator(on_bad="skip"))
    >>> [one.kept for _, decisions in job for one in decisions], job.field
    ([True, False], 'text')
    """

    def __init__(
        self,
        paths: Sequence[str],
        seen: Deduplicator,
        *,
        form: str | None = None,
        field: str | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.tally = Tally()
        self.damages = dict[str, str]()  # by file
        self._seen, self._paths, self._stop = seen, paths, stop
        self._given_field = field
        self._reasons, self._first_reason = Counter[str](), ""
        self._n_bytes = 0  # of the files that were read to their end
        self._file: BufferedReader | None = None
        self._form = ""  # the name of the format
        self._format: Format | None = None
        if (name := form or self._detect()) is not None:
            self._set_format(name)

    def __iter__(self) -> Iterator[tuple[Batch, list[Decision]]]:
        """Records with the decisions on them; an error if none could be compared."""
        for path in self._paths:
            read = self._read_rows if self.schema is not None else self._read_lines
            for batch in read(path):
                yield batch, self._decide(batch)
            if os.path.isfile(path):
                self._n_bytes += os.path.getsize(path)
        if 0 < self.tally.records == self.tally.rejected:
            raise FormatError(
                f"none of the {self.tally.records:,} records can be compared; {self._first_reason}"
            )

    @property
    def field(self) -> str | None:
        """The field that is compared; None of plain text, or while it is not known."""
        return None if self._format is None else self._format.field

    @property
    def setting(self) -> str | None:
        """Format and field as options; None while they are not known."""
        if self._form == "text":
            return "--format text"
        return None if self.field is None else f"--format {self._form} --field {self.field}"

    @property
    def schema(self) -> Any:  # noqa: ANN401
        """The columns of Parquet; None of other formats."""
        return self._format.schema if isinstance(self._format, Parquet) else None

    @property
    def bytes_read(self) -> int:
        """Bytes of all files that were read, before decompression."""
        return self._n_bytes + (0 if self._file is None else formats.bytes_read(self._file))

    @property
    def reason(self) -> str:
        """The commonest reason why records were rejected."""
        if not self._reasons:
            return ""
        [(why, _)] = self._reasons.most_common(1)
        return f"because {why}" if len(self._reasons) == 1 else f"most often because {why}"

    def _detect(self) -> str | None:
        """The one format of all regular files; None if all of them are empty."""
        found = dict[str, str]()
        for path in filter(os.path.isfile, self._paths):
            with formats.open_input(path) as file, suppress(EOFError, DamagedFileError):
                if (head := file.peek()).strip():
                    found[path] = formats.detect(path, head, self._given_field)
        for path, name in found.items():
            first = next(iter(found))
            if name != found[first]:
                raise FormatError(
                    f"{first} is {found[first]}, {path} is {name}; run dedup on each of them, or "
                    "say what they are with --format"
                )
        return next(iter(found.values()), None)

    def _set_format(self, name: str) -> Format:
        self._form, self._format = name, formats.make_format(name, self._given_field)
        if isinstance(self._format, Parquet):
            self._format.check(self._paths)
        return self._format

    def _read_rows(self, path: str) -> Iterator[Batch]:
        yield from cast(Parquet, self._format).read(path, self._stop)

    def _read_lines(self, path: str) -> Iterator[Batch]:
        name = "standard input" if path == "-" else path
        with formats.open_input(path, self._stop) as file:
            self._file = file
            try:
                head = file.peek()
                check_not_utf16(head, name)
                lines = formats.iterate_lines(file, self._stop)
                if self._format is None and head.strip():
                    if (form := formats.detect(path, head, self._given_field)) == "parquet":
                        raise FormatError(f"{name}: Parquet needs a file, not a pipe")
                    self._set_format(form)
                if self._format is not None:
                    yield from cast(Text | Csv, self._format).read(lines, name)
            except (EOFError, DamagedFileError) as error:
                self.damages[name] = str(error)
            except OSError as error:
                raise FormatError(f"cannot read {name}: {error.strerror}") from error
            finally:
                self._file = None

    def _decide(self, batch: Batch) -> list[Decision]:
        decisions = self._seen.add_many([one.content for one in batch.records])
        self.tally.count(decisions)
        found = []
        for record, decision in zip(batch.records, decisions, strict=True):
            if record.reason:
                decision = decision._replace(reason=record.reason)
            if decision.bad:
                self._count_reason(f"line {record.line} of {batch.file}", decision.reason or "")
            found.append(decision)
        return found

    def _count_reason(self, where: str, reason: str) -> None:
        self._first_reason = self._first_reason or f"{where}: {reason}"
        if self._reasons.total() < MOST_REASONS:
            self._reasons[re.split("[:;] ", reason)[0]] += 1
