"""Records in files: plain text, JSON lines, CSV. A record stays the bytes it was."""

from __future__ import annotations

import csv
import json
from typing import Any, NamedTuple, Protocol

from ..files.headers import Header
from ..files.unpacking import SourceError
from .records import names

LONGEST = 1 << 26  # bytes of a record; a longer one is passed over
OPEN = 1 << 20  # bytes after which an open quote was a slip
SEPARATORS = ",\t;|"
FIRST = 100  # records whose fields are told if none has the right one


class Raw(NamedTuple):
    """A record as it was, without the newline, and what of it is compared; None: it is bad."""

    raw: bytes
    content: str | list[Any] | None
    line: int = 0  # how many lines after the first of those it was cut from
    why: str = ""  # it is bad


class Form(Protocol):
    """How bytes are cut into records."""

    name: str

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """The whole records in some bytes, and where they end; all of them if there are no more."""


class Text:
    r"""A record is a line, of which what follows the header counts, if it has one.

    >>> records, end = Text().cut(b"one\r\ntwo\nthr", over=False)
    >>> [(one.raw, one.content, one.line) for one in records], end
    ([(b'one\r', 'one', 0), (b'two', 'two', 1)], 9)
    """

    name = "text"

    def __init__(self, stamp: Header | None = None) -> None:
        self._stamp = stamp

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """One record per line."""
        end = len(held) if over else held.rfind(b"\n") + 1
        lines = held[:end].split(b"\n")
        if not lines[-1]:
            lines.pop()
        records = (self.read(line, number) for number, line in enumerate(lines))
        return [one for one in records if one is not None], end

    def read(self, line: bytes, number: int) -> Raw | None:
        """What a line is; nothing, if it does not count."""
        text = line.removesuffix(b"\r").decode("utf-8", "replace")
        if self._stamp is not None:
            text = self._stamp.strip([text])[0][0]
        return Raw(line, text, number)


class Json(Text):
    """A record is a line with a JSON object, of which one field counts; blank lines do not."""

    name = "jsonl"

    def __init__(self, field: str) -> None:
        super().__init__()
        self._field, self._found = field, False
        self._objects, self._names = 0, dict[str, None]()  # fields of the first objects

    def read(self, line: bytes, number: int) -> Raw | None:
        """The field of the object."""
        if not line.strip():
            return None
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Raw(line, None, number, f"it is no JSON: {error}")
        if not isinstance(record, dict):
            return Raw(line, None, number, f"it is a {type(record).__name__}, and no object")
        value = record.get(self._field)
        if isinstance(value, str | list):
            self._found = True
            return Raw(line, value, number)
        self._note(record)
        said = f"is {type(value).__name__}, neither a text nor a list of numbers"
        if value is None:
            said = "is empty" if self._field in record else f"is missing; it has {names(record)}"
        return Raw(line, None, number, f"the field {self._field!r} {said}")

    def complaint(self) -> str:
        """What is wrong with all the lines; nothing if only their values may be."""
        if self._found:
            return ""
        if not self._objects:
            return (
                "no line is a JSON object, and there must be one JSON object per line: "
                "jq -c . makes that of objects, jq -c '.[]' of an array"
            )
        return (
            f"no record has the field {self._field!r}; the first ones have "
            f"{names(self._names)}; name another with --field"
        )

    def _note(self, record: dict[str, Any]) -> None:
        self._found = self._found or self._field in record
        if self._objects < FIRST:
            self._names.update(dict.fromkeys(record))
        self._objects += 1


class Csv:
    r"""A record is a row, of which one column counts; quoted text may have newlines.

    >>> form = Csv("text", b"id,text")
    >>> records, end = form.cut(b'1,"a\nb"\n2,c\n3', over=False)
    >>> [(one.raw, one.content, one.line) for one in records], end
    ([(b'1,"a\nb"', 'a\nb', 0), (b'2,c', 'c', 2)], 12)
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
        start = line = 0
        while (end := _row_end(held, start, over=over)) is not None:
            raw = held[start:end].removesuffix(b"\n")
            read = self._read(raw, line)
            if read.content is None and b"\n" in raw:
                # Not one row after all: a quote in its first line was not closed.
                end = held.find(b"\n", start) + 1
                read = Raw(held[start : end - 1], None, line, "a quote in it is not closed")
            line += held.count(b"\n", start, end)
            start = end
            if raw.strip():
                records.append(read)
        return records, start

    def _read(self, raw: bytes, line: int) -> Raw:
        text = raw.removesuffix(b"\r").decode("utf-8", "replace")
        try:
            [row] = csv.reader(
                text.splitlines(keepends=True), delimiter=self._separator, strict=True
            )
        except (csv.Error, ValueError) as error:
            return Raw(raw, None, line, f"it is no row: {error}")
        if self._place < len(row):
            return Raw(raw, row[self._place], line)
        return Raw(raw, None, line, f"it has {len(row)} columns, number {self._place + 1} counts")


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
