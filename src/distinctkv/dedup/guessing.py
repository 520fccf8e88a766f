"""What the records of files are, from their first bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ..logs.headers import Header
from ..logs.headers import guess as guess_header
from ..logs.sources import Source
from ..logs.unpacking import SourceError
from .forms import LONGEST
from .separated import Csv

PIECE = 1 << 16
FEW = 3  # lines that say something of a header
_array = re.compile(rb"\s*\[\s*\{")


def guess(path: str, field: str | None) -> str:
    """What the records of a file are, by its first bytes and by whether a field is asked for.

    Of what comes through a pipe the first bytes are not known yet: ``auto``.
    """
    if not os.path.isfile(path):
        return "text" if field is None else "auto"
    start = _head(path)
    if start.startswith(b"PAR1"):
        return "parquet"
    form = of_start(start, field, path)
    return form if form == "jsonl" else _by_name(path) or form


def of_start(start: bytes, field: str | None, name: str) -> str:
    """The form of a text that begins so."""
    if _array.match(start):
        raise SourceError(
            f"{name} is a JSON array, and there must be one JSON object per line: "
            f"jq -c '.[]' makes that of it; if it is plain text, say --format text"
        )
    if start.startswith(b"\x93NUMPY"):
        raise SourceError(
            f"{name} is an array of NumPy, not lines of text; in Python: "
            "Deduplicator().add_many(numpy.load(...))"
        )
    if start.lstrip()[:1] == b"{":
        return "jsonl"
    return "text" if field is None else "csv"


def _by_name(path: str) -> str | None:
    """What a file that does not begin like JSON says it is by its name; nothing if that is open."""
    name = path.lower()
    for packed in (".gz", ".bz2", ".xz", ".zst"):
        name = name.removesuffix(packed)
    if name.endswith((".csv", ".tsv")):
        return "csv"
    return "jsonl" if name.endswith((".jsonl", ".ndjson")) else None


def refuse_parquet(start: bytes, name: str) -> None:
    """Refuse Parquet where it cannot be read, by its first bytes."""
    if start.startswith(b"PAR1") and b"\0" in start:
        raise SourceError(
            f"{name} gives Parquet, which is read from its end and needs a file; name the file"
        )


def columns_of(path: str) -> str:
    """The first line of a file, to be told."""
    return _first_line(path).decode("utf-8", "replace").strip()[:200]


def one_form(paths: Sequence[str], field: str | None) -> str:
    """What the records of all these files are; empty ones are anything."""
    files = [path for path in paths if os.path.isfile(path) and _head(path).strip()]
    first, *others = files or paths[:1]
    form = guess(first, field)
    for path in others:
        if (other := guess(path, field)) != form:
            raise SourceError(
                f"{first} is {form}, {path} is {other}; de-duplicate them apart, "
                "or say what they are with --format"
            )
    return form


def check_columns(paths: Sequence[str], field: str, header: bytes) -> None:
    """Refuse files of CSV that have not the same columns, before anything is read."""
    for path in filter(os.path.isfile, paths):
        line = _first_line(path)
        if not line.strip():
            continue
        try:
            Csv(field, line)
        except SourceError as error:
            raise SourceError(f"{path}: {error}") from error
        header = header or line
        same_columns(path, line, header)


def same_columns(name: str, line: bytes, header: bytes) -> None:
    """Refuse a file whose first line is not that of those before it."""
    if line.rstrip() != header.rstrip():
        ours, theirs = (one.rstrip().decode("utf-8", "replace")[:200] for one in (header, line))
        raise SourceError(
            f"{name} has other columns than what came before: {theirs!r}, not {ours!r}; "
            "de-duplicate it apart"
        )


def hinted(path: str) -> Header | None:
    """The header that the first lines of a file seem to have, if it says when."""
    head = _head(path) if os.path.isfile(path) else b""
    lines = head.decode("utf-8", "replace").split("\n")[:-1]
    header = guess_header(lines) if len(lines) >= FEW else None
    return header if header is not None and header.tells_time else None


def _head(path: str) -> bytes:
    source = Source(path)
    try:
        return source.head
    finally:
        source.close()


def _first_line(path: str) -> bytes:
    source, parts, size = Source(path), [b""], 0
    try:
        while b"\n" not in parts[-1] and size <= LONGEST and (piece := source.read(PIECE)):
            parts.append(piece)
            size += len(piece)
    finally:
        source.close()
    line = b"".join(parts).partition(b"\n")[0]
    check_length(line, path)
    return line


def check_length(line: bytes, name: str) -> None:
    """Refuse a first line that cannot be one of columns."""
    if len(line) > LONGEST:
        raise SourceError(
            f"the first line of {name} is longer than {LONGEST:,} bytes, and so names no columns; "
            "is it a table of text? --format says what else it is"
        )
