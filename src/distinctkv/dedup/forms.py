"""Records in files: plain text and JSON lines. A record stays the bytes it was."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from ..logs.headers import Header
from .records import names

LONGEST = 1 << 26  # bytes of a record; a longer one is passed over
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
        self.lines = self.headerless = 0  # counted where there is a header

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
        text = line.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if self._stamp is not None:
            [text], [time] = self._stamp.strip([text])
            self.lines += 1
            self.headerless += time is None
        return Raw(line, text, number)


class TooLong:
    """A line of more than `LONGEST` bytes, of which nothing is held."""

    name = "too long"

    @staticmethod
    def at(line: int) -> Raw:
        """The record that it is."""
        said = f"it is longer than {LONGEST:,} bytes, the most that is compared"
        return Raw(b"", None, line, f"{said}; break it into lines before")

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """One record."""
        return [self.at(0)], len(held)


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
