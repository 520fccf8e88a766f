"""Separated values: rows with quotes as people write them, and as they slip in."""

from __future__ import annotations

import re

from ..logs.unpacking import SourceError
from .forms import Raw

OPEN = 1 << 20  # bytes within which a quote must be closed; if not, it was a slip
SEPARATORS = ",\t;|"
Row = tuple[int, list[bytes]]  # where it ends, its newline included, and its cells


class Csv:
    r"""A record is a row, of which one column counts; quoted text may have newlines.

    >>> form = Csv("text", b"id,text")
    >>> records, end = form.cut(b'1,"a\nb"\n2,c\n3', over=False)
    >>> [(one.raw, one.content, one.line) for one in records], end
    ([(b'1,"a\nb"', 'a\nb', 0), (b'2,c', 'c', 2)], 12)
    """

    name = "csv"

    def __init__(self, field: str, header: bytes) -> None:
        line = header.removesuffix(b"\r")
        for separator in SEPARATORS:
            names = [_text(cell) for cell in cells(line, separator.encode())]
            if names.count(field) > 1:
                raise SourceError(f"two columns are named {field!r}: {names}; rename one of them")
            if field in names:
                self._separator, self._place = separator.encode(), names.index(field)
                return
        raise SourceError(
            f"the first line has no column {field!r}: {_text(line)[:200]!r}; name another with "
            "--field, or say what the file is with --format"
        )

    def cut(self, held: bytes, *, over: bool) -> tuple[list[Raw], int]:
        """One record per row; a quote that is never closed matters in its own line only."""
        records: list[Raw] = []
        start = line = 0
        while (found := row(held, start, self._separator, over=over)) is not None:
            raw = held[start : found[0]].removesuffix(b"\n")
            if raw.strip() or self._separator in raw:  # a row of empty cells may be all tabs
                records.append(self._read(raw, found[1], line))
            line += held.count(b"\n", start, found[0])
            start = found[0]
        return records, start

    def _read(self, raw: bytes, cells: list[bytes], line: int) -> Raw:
        if self._place < len(cells):
            return Raw(raw, _text(cells[self._place]), line)
        return Raw(raw, None, line, f"it has {len(cells)} columns, number {self._place + 1} counts")


def row(held: bytes, start: int, separator: bytes, *, over: bool) -> Row | None:
    """The row that begins here; None if its end is still to come.

    Quotes that are well closed may hold newlines. Of a row in which they are not, the first line
    is taken alone.
    """
    newline = held.find(b"\n", start)
    if start >= len(held) or (newline < 0 and not over):
        return None
    stop = len(held) if newline < 0 else newline
    if held.find(b'"', start, stop) >= 0:
        found = _spanning(held, start, separator, over=over)
        if found is None or found[1]:
            return found
    return min(stop + 1, len(held)), cells(held[start:stop].removesuffix(b"\r"), separator)


def cells(line: bytes, separator: bytes) -> list[bytes]:
    """The cells of one line; a quote counts at the start of a cell, and closes at the line's end.

    >>> cells(b'5" pipe,"a, b",c', b",")
    [b'5" pipe', b'a, b', b'c']
    """
    if b'"' not in line:
        return line.split(separator)
    found, place = [], 0
    while True:
        cell = b""
        if line.startswith(b'"', place):
            close = _closing(line, place + 1, len(line))
            cell = line[place + 1 : close].replace(b'""', b'"')
            place = close + 1
        stop = line.find(separator, place)
        stop = max(place, len(line)) if stop < 0 else stop
        found.append(cell + line[place:stop])
        if stop >= len(line):
            return found
        place = stop + 1


def _spanning(held: bytes, start: int, separator: bytes, *, over: bool) -> Row | None:
    """The row that begins here; None if its end is still to come, no cells if it is none."""
    found, place, limit = [], start, start + OPEN
    plain = re.compile(b"[^\n" + re.escape(separator) + b"]*")
    none: Row = (start, [])
    while True:
        if held.startswith(b'"', place):
            close = _closing(held, place + 1, min(limit, len(held)))
            if close >= min(limit, len(held)):
                return none if over or len(held) >= limit else None
            found.append(held[place + 1 : close].replace(b'""', b'"'))
            place = close + 1
        else:
            stop = plain.match(held, place).end()  # type: ignore[union-attr]
            found.append(held[place:stop])
            place = stop
            if held.startswith(b"\n", place) or place >= len(held):
                found[-1] = found[-1].removesuffix(b"\r")
        after = held[place : place + 2]
        if after in (b"", b"\r"):
            return (len(held), found) if over else None
        if after == b"\r\n" or after[:1] == b"\n":
            return held.find(b"\n", place) + 1, found
        if after[:1] != separator:
            return none
        place += 1


def _closing(held: bytes, start: int, stop: int) -> int:
    """Where the quote is that closes what begins here; the stop if there is none."""
    while (quote := held.find(b'"', start, stop)) >= 0:
        if not held.startswith(b'"', quote + 1):
            return quote
        start = quote + 2
    return stop


def _text(cell: bytes) -> str:
    return cell.decode("utf-8", "surrogateescape")
