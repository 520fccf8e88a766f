"""Records in files: plain text, JSON lines, CSV. A record stays the bytes it was."""

from __future__ import annotations

import csv
import json
from typing import Any, NamedTuple, Protocol

from ..files.sources import Source
from ..files.unpacking import SourceError

LONGEST = 1 << 26  # bytes of a record; a longer one is passed over
OPEN = 1 << 20  # bytes after which an open quote was a slip
SEPARATORS = ",\t;|"


class Raw(NamedTuple):
    """A record as it was, without the newline, and what of it is compared; None: it is bad."""

    raw: bytes
    content: str | list[Any] | None


class Form(Protocol):
    """How bytes are cut into records."""

    name: str

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """The whole records in some bytes, and where they end; all of them if there are no more."""


class Text:
    r"""A record is a line.

    >>> records, end = Text().cut(b"one\r\ntwo\nthr", over=False)
    >>> records, end
    ([Raw(raw=b'one\r', content='one'), Raw(raw=b'two', content='two')], 9)
    """

    name = "text"

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """One record per line."""
        end = len(held) if over else held.rfind(b"\n") + 1
        lines = held[:end].split(b"\n")
        if not lines[-1]:
            lines.pop()
        return [one for line in lines if (one := self.read(line)) is not None], end

    def read(self, line: bytes) -> Raw | None:
        """What a line is; nothing, if it does not count."""
        return Raw(line, line.removesuffix(b"\r").decode("utf-8", "replace"))


class Json(Text):
    """A record is a line with a JSON object, of which one field counts; blank lines do not."""

    name = "jsonl"

    def __init__(self, field: str) -> None:
        self._field = field

    def read(self, line: bytes) -> Raw | None:
        """The field of the object."""
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return Raw(line, None)
        value = record.get(self._field) if isinstance(record, dict) else None
        return Raw(line, value if isinstance(value, str | list) else None)


class Csv:
    r"""A record is a row, of which one column counts; quoted text may have newlines.

    >>> form = Csv("text", b"id,text")
    >>> form.cut(b'1,"a\nb"\n2,c\n3', over=False)
    ([Raw(raw=b'1,"a\nb"', content='a\nb'), Raw(raw=b'2,c', content='c')], 12)
    """

    name = "csv"

    def __init__(self, field: str, header: bytes) -> None:
        text = header.removesuffix(b"\r").decode("utf-8", "replace")
        for separator in SEPARATORS:
            names = next(csv.reader([text], delimiter=separator), [])
            if field in names:
                self._separator, self._place = separator, names.index(field)
                return
        raise SourceError(
            f"the first line has no column {field!r}: {text[:200]!r}; name another with --field"
        )

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """One record per row; a quote that is never closed spoils its own line only."""
        records: list[Raw] = []
        start = 0
        while (end := _row_end(held, start, over=over)) is not None:
            raw = held[start:end].removesuffix(b"\n")
            read = self._read(raw)
            if read.content is None and b"\n" in raw:
                # Not one row after all: a quote in its first line was not closed.
                end = held.find(b"\n", start) + 1
                read = Raw(held[start : end - 1], None)
            start = end
            if raw.strip():
                records.append(read)
        return records, start

    def _read(self, raw: bytes) -> Raw:
        text = raw.removesuffix(b"\r").decode("utf-8", "replace")
        try:
            [row] = csv.reader(
                text.splitlines(keepends=True), delimiter=self._separator, strict=True
            )
        except (csv.Error, ValueError):
            return Raw(raw, None)
        return Raw(raw, row[self._place] if self._place < len(row) else None)


def guess(path: str, field: str | None) -> str:
    """What the records of a file are, by its first bytes and by whether a field is asked for.

    Of what comes through a pipe the first bytes are not known yet: ``auto``.
    """
    if path == "-":
        return "text" if field is None else "auto"
    source = Source(path)
    try:
        start = source.head
    finally:
        source.close()
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.lstrip()[:1] == b"{":
        return "jsonl"
    return "text" if field is None else "csv"


def _row_end(held: bytes, start: int, *, over: bool) -> int | None:
    """Where a row ends, its newline included; None if that is still to come."""
    stop, quotes = start, 0
    while stop < len(held):
        line = held.find(b"\n", stop) + 1 or (len(held) if over else 0)
        if not line:
            break
        quotes += held.count(b'"', stop, line)
        stop = line
        if quotes % 2 == 0:
            return stop
        if stop - start > OPEN:
            break
    if stop > start and (over or stop - start > OPEN):
        return held.find(b"\n", start) + 1 or len(held)
    return None
