"""Files of records: plain text, JSON lines, CSV and Parquet, compressed or not.

Each format is a class with a `read` that yields `Batch` after `Batch`; a record keeps the bytes
that it had in its file. The two classes of outputs write the records of batches unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ..compression import ARCHIVES, DamagedFileError, Decompressed, SourceError
from ..extras import install
from .records import field_names

CHUNK = 1 << 20  # bytes read at a time
ROWS = 1 << 14  # rows of Parquet read at a time
WAIT = 0.2  # seconds between two looks at `stop` while a pipe is silent
LONGEST_CELL = 1 << 20  # characters; a quote of CSV that is not closed within them is a character
SEPARATORS = ",\t;|"
NO_SEPARATOR = "\x1f"  # of a table of one column: its texts may have commas
FORMATS = ("text", "jsonl", "csv", "parquet")
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
BOM = b"\xef\xbb\xbf"


class FormatError(SourceError):
    """A file that cannot be read in its format, and the way out."""


class Record(NamedTuple):
    """A record as it was in its file, and what of it is compared."""

    raw: bytes  # without the newline; empty for a row of Parquet
    content: str | list[Any] | None  # None if it cannot be compared
    line: int  # its first line in the file, from 1; of Parquet its row
    reason: str = ""  # why it cannot be compared


class Batch(NamedTuple):
    """Some records that follow each other in a file."""

    file: str
    records: list[Record]
    header: bytes = b""  # the first line of CSV
    table: Any = None  # the rows of Parquet


class Text:
    """A record is a line."""

    field: str | None = None

    def read(self, lines: Iterator[list[bytes]], file: str) -> Iterator[Batch]:
        """The records of a file, as they come."""
        number = 1
        for chunk in lines:
            records = (self._record(line, n, file) for n, line in enumerate(chunk, number))
            yield Batch(file, [record for record in records if record is not None])
            number += len(chunk)

    def _record(self, line: bytes, number: int, file: str) -> Record | None:
        return Record(line, _decode(line.removesuffix(b"\r")), number)


class JsonLines(Text):
    """A record is a line with a JSON object, of which one field is compared."""

    def __init__(self, field: str | None) -> None:
        self.field = field

    def _record(self, line: bytes, number: int, file: str) -> Record | None:
        if not line.strip():
            return None
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            return Record(line, None, number, f"it is not JSON: {error}")
        if not isinstance(found, dict):
            problem = f"it is a JSON {type(found).__name__}, not an object"
            hint = "; jq -c '.[]' makes lines of an array" if isinstance(found, list) else ""
            return Record(line, None, number, problem + hint)
        if self.field is None:
            self.field = _choose_json_field(found, file)
        if self.field is None:
            problem = f"no field holds a text; it has {field_names(found)}; name one with --field"
            return Record(line, None, number, problem)
        value = found.get(self.field)
        if isinstance(value, str | list):
            return Record(line, value, number)
        problem = f"is {type(value).__name__}, neither a text nor a list of numbers"
        if value is None:
            problem = (
                "is empty" if self.field in found else f"is missing; it has {field_names(found)}"
            )
        return Record(line, None, number, f"the field {self.field!r} {problem}")


class Csv:
    r"""A record is a row, of which one column is compared; a quoted cell may have newlines.

    A quote that is not closed is a character of its own line, as in ``"never closed``.

    >>> batch = next(Csv("text").read(iter([[b"id,text", b'1,"a', b'b"', b"2,c"]]), "a file"))
    >>> [(one.raw, one.content, one.line) for one in batch.records]
    [(b'1,"a\nb"', 'a\nb', 2), (b'2,c', 'c', 4)]
    """

    def __init__(self, field: str | None) -> None:
        self.field, self._header = field, b""

    def read(self, lines: Iterator[list[bytes]], file: str) -> Iterator[Batch]:
        """The records of a file, as they come; its first line names the columns."""
        source = _Lines(lines)
        if next(source, None) is None:
            return
        header = source.take()
        separator, column = self._find_column(header.removesuffix(b"\r"), file)
        csv.field_size_limit(LONGEST_CELL)
        reader, records, number = csv.reader(source, delimiter=separator, strict=True), [], 2
        while True:
            try:
                cells, why = next(reader), ""
            except StopIteration:
                break
            except csv.Error:
                source.keep_first()
                # csv rejects a carriage return inside a cell without quotes
                line = source.lines[0].removesuffix(b"\r").replace(b"\r", b" ")
                cells, why = _cells(line, separator)
            n_lines, raw = len(source.lines), source.take()
            if cells or why:
                records.append(_row(raw, cells, column, number, why))
            number += n_lines
            if not source.ready:
                yield Batch(file, records, header)
                records = []
        yield Batch(file, records, header)

    def _find_column(self, header: bytes, file: str) -> tuple[str, int]:
        """The separator, and which column is compared."""
        if self._header not in (b"", header):
            raise FormatError(
                f"{file} has the columns {_decode(header)[:200]!r}, the file before "
                f"{_decode(self._header)[:200]!r}; run dedup on each of them"
            )
        self._header = header
        columns_by_separator = {one: _cells(header, one)[0] for one in SEPARATORS}
        if self.field is None:
            self.field = _choose_csv_field([*columns_by_separator.values()], file)
        for separator, columns in columns_by_separator.items():
            if columns == [self.field]:
                return NO_SEPARATOR, 0
            if self.field in columns:
                if columns.count(self.field) > 1:
                    raise FormatError(f"{file}: two columns are named {self.field!r}; rename one")
                return separator, columns.index(self.field)
        raise FormatError(
            f"the first line of {file} has no column {self.field!r}: {_decode(header)[:200]!r}; "
            "name another with --field, or the format of the file with --format"
        )


class Parquet:
    """A record is a row, of which one column is compared."""

    def __init__(self, field: str | None) -> None:
        self.field = field
        self.schema: Any = None  # of all files

    def check(self, paths: Sequence[str]) -> None:
        """Refuse files that have not the same columns, or whose field cannot be compared."""
        for path in paths:
            if not os.path.isfile(path):
                raise FormatError(f"{path}: Parquet needs a file, not a pipe")
            with _open_parquet(path) as file:
                schema = file.schema_arrow
            if self.schema is None:
                self.schema = schema
            elif not schema.equals(self.schema):
                raise FormatError(
                    f"{path} has other columns than {paths[0]}: {_describe(schema)}, not "
                    f"{_describe(self.schema)}; run dedup on each of them"
                )
        able = [one.name for one in self.schema if _is_comparable(one.type)]
        if self.field is None:
            texts = [one.name for one in self.schema if _is_text(one.type)]
            self.field = choose_field(texts, self.schema.names, paths[0])
        if self.schema.names.count(self.field) > 1:
            raise FormatError(f"{paths[0]} has two columns named {self.field!r}; rename one")
        if self.field not in able:
            kinds = dict(zip(self.schema.names, self.schema.types, strict=True))
            problem = f"is {kinds[self.field]}" if self.field in kinds else "does not exist"
            raise FormatError(
                f"the column {self.field!r} of {paths[0]} {problem}; columns of texts or lists of "
                f"numbers: {', '.join(map(repr, able)) or 'none'}"
            )

    def read(self, path: str, stop: Callable[[], bool]) -> Iterator[Batch]:
        """The rows of a file."""
        number = 1
        for rows in parquet_batches(path, path):
            if stop():
                return
            values = rows.column(self.field).to_pylist()
            yield Batch(path, [Record(b"", v, n) for n, v in enumerate(values, number)], b"", rows)
            number += len(values)


Format = Text | JsonLines | Csv | Parquet


def make_format(name: str, field: str | None) -> Format:
    """The format of a name in `FORMATS`."""
    if name == "text":
        if field is not None:
            raise FormatError(f"plain text has no field {field!r}; give another --format")
        return Text()
    if name == "jsonl":
        return JsonLines(field)
    return Csv(field) if name == "csv" else Parquet(field)


def detect(path: str, head: bytes, field: str | None) -> str:
    """The format of a file, from its suffix, or its first bytes, or whether it is to have a field.

    >>> detect("a.csv.gz", b"", None), detect("-", b' {"a": 1}', None), detect("-", b"a b", None)
    ('csv', 'jsonl', 'text')
    """
    name = path.lower()
    for suffix in ARCHIVES:
        name = name.removesuffix(suffix)
    if head.startswith(b"PAR1"):
        return "parquet"
    if found := SUFFIXES.get(os.path.splitext(name)[1]):
        return found
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    return "text" if field is None else "csv"


def choose_field(texts: Sequence[str], fields: Sequence[str], file: str) -> str:
    """The field to compare if none is named: ``text``, or the only one that holds texts."""
    if "text" in texts:
        return "text"
    if len(texts) != 1:
        raise FormatError(
            f"{file} has the fields {', '.join(map(repr, fields)) or 'none'}; name the one to "
            "compare with --field, or compare whole lines with --format text"
        )
    return texts[0]


def _choose_json_field(found: dict[str, Any], file: str) -> str | None:
    """The field to compare, from one record; None if the record holds no text."""
    if "text" in found:  # also if it is null here
        return "text"
    texts = [name for name, value in found.items() if isinstance(value, str)]
    return choose_field(texts, [*found], file) if texts else None


def _choose_csv_field(tables: Sequence[list[str]], file: str) -> str:
    """The column to compare, from the columns that each separator yields."""
    if any("text" in columns for columns in tables):
        return "text"
    columns = max(tables, key=len)
    return choose_field(columns, columns, file)


def open_input(path: str, stop: Callable[[], bool] = lambda: False) -> io.BufferedReader:
    """A file, or standard input for ``-``, decompressed; it ends early once ``stop()`` is true."""
    if path == "-" and sys.stdin is None:
        raise FormatError("standard input is closed; name a file to read")
    stdin = getattr(sys.stdin, "buffer", None)
    file = cast(BinaryIO, getattr(stdin, "raw", stdin)) if path == "-" else _open_raw(path)
    return buffered(_Stoppable(file, stop, owned=path != "-"), path)


def buffered(raw: io.RawIOBase, name: str) -> io.BufferedReader:
    """A reader of what a file holds when decompressed."""
    try:
        return io.BufferedReader(Decompressed(io.BufferedReader(raw, CHUNK)), CHUNK)
    except (ImportError, OSError) as error:
        raise FormatError(f"cannot read {name}: {error}") from error


def bytes_read(file: io.BufferedReader) -> int:
    """Bytes of a file of `open_input` that were read, before decompression."""
    return cast(Decompressed, file.raw).bytes_read()


def iterate_lines(
    file: io.BufferedReader, stop: Callable[[], bool] = lambda: False
) -> Iterator[list[bytes]]:
    """Lines without newlines, as many at a time as have come; not a half one after a stop.

    Raises `EOFError` or `DamagedFileError` after the last line that could be decompressed.
    """
    parts: list[bytes] = []  # of a line that has not ended
    mark, damage = BOM, None
    while True:
        try:
            chunk = file.read1(CHUNK).removeprefix(mark)
        except (EOFError, DamagedFileError) as error:
            damage = error
            break
        if not chunk:
            break
        mark = b""
        parts.append(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(parts).split(b"\n")
            parts = [rest]
            yield lines
    if stop():
        return
    if last := b"".join(parts):
        yield [last]
    if damage is not None:
        raise damage


def json_objects(lines: Iterable[list[bytes]], name: str) -> Iterator[list[tuple[int, Any]]]:
    """The values of JSON lines with their line numbers; blank lines are passed over."""

    def parse(number: int, line: bytes) -> tuple[int, Any]:
        try:
            return number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{name}, line {number} is not JSON: {error}") from error

    first = 1
    for chunk in lines:
        yield [parse(number, line) for number, line in enumerate(chunk, first) if line.strip()]
        first += len(chunk)


def parquet_batches(
    source: str | BinaryIO, name: str, columns: list[str] | None = None
) -> Iterator[Any]:
    """Record batches of a Parquet file, of some columns or of all."""
    import_pyarrow(name)
    import pyarrow

    with _open_parquet(source, name) as file:
        missing = set(columns or ()) - set(file.schema_arrow.names)
        if missing:
            raise FormatError(
                f"{name} has no column {sorted(missing)}; it has {file.schema_arrow.names}"
            )
        try:
            yield from file.iter_batches(ROWS, columns=columns)
        except (pyarrow.ArrowException, OSError) as error:
            raise FormatError(f"cannot read Parquet from {name}: {error}") from error


def import_pyarrow(name: str) -> None:
    """Say how to install pyarrow if it is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise FormatError(f"to read {name}: {install('scale')}") from error


class LineOutput:
    """Writes records as the lines they were; of CSV first the line that names the columns."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._header, self._wrote_header = file, b"", False

    def write(self, batch: Batch, kept: Sequence[bool]) -> None:
        """Write those records of a batch that are kept."""
        self._header = batch.header
        pairs = zip(batch.records, kept, strict=True)
        lines = [one.raw + b"\n" for one, is_kept in pairs if is_kept]
        if lines:
            self._write_header()
            self._file.writelines(lines)
            self._file.flush()

    def close(self) -> None:
        """Write what an output without records has, too."""
        self._write_header()
        self._file.flush()

    def _write_header(self) -> None:
        if self._header and not self._wrote_header:
            self._file.write(self._header + b"\n")
            self._wrote_header = True


class ParquetOutput:
    """Writes rows to a file of Parquet, with the columns that they had."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:  # noqa: ANN401
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(file, schema)

    def write(self, batch: Batch, kept: Sequence[bool]) -> None:
        """Write those rows of a batch that are kept."""
        import pyarrow

        self._writer.write_batch(batch.table.filter(pyarrow.array(kept, pyarrow.bool_())))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


class _Stoppable(io.RawIOBase):
    """A file that ends once ``stop()`` is true, also while a pipe is silent."""

    def __init__(self, file: BinaryIO, stop: Callable[[], bool], *, owned: bool) -> None:
        self._file, self._stop, self._owned, self._n_read = file, stop, owned, 0
        try:
            self._number = file.fileno()
        except OSError:  # a stand-in for standard input
            self._number = -1

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer with what is there; 0 at the end or once stopped."""
        while not self._stop():
            if self._number < 0 or select.select([self._number], [], [], WAIT)[0]:
                data = self._file.read(len(buffer))
                buffer[: len(data)] = data
                self._n_read += len(data)
                return len(data)
        return 0

    def tell(self) -> int:
        """Bytes read."""
        return self._n_read

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._owned:
            self._file.close()
        super().close()


class _Lines:
    """Lines as `csv.reader` takes them; ``lines`` are those that it took for the row it is at."""

    def __init__(self, chunks: Iterator[list[bytes]]) -> None:
        self._chunks, self.ready, self.lines = chunks, deque[bytes](), list[bytes]()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while not self.ready:
            self.ready.extend(next(self._chunks))
        self.lines.append(self.ready.popleft())
        return _decode(self.lines[-1]) + "\n"

    def take(self) -> bytes:
        """The raw row, which ends here."""
        raw, self.lines = b"\n".join(self.lines), []
        return raw

    def keep_first(self) -> None:
        """Let the row end after its first line; the others come again."""
        self.ready.extendleft(reversed(self.lines[1:]))
        del self.lines[1:]


def _cells(line: bytes, separator: str) -> tuple[list[str], str]:
    """The cells of a line by itself, or why it has none."""
    try:
        return next(csv.reader([_decode(line)], delimiter=separator), []), ""
    except csv.Error as error:
        return [], f"it is not CSV: {error}"


def _row(raw: bytes, cells: list[str], column: int, number: int, why: str) -> Record:
    if column < len(cells):
        return Record(raw, cells[column], number)
    why = why or f"it has {len(cells)} columns, and number {column + 1} is compared"
    return Record(raw, None, number, why)


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def _open_raw(path: str) -> BinaryIO:
    """A file without a buffer; a named pipe opens at once, also while nobody writes to it."""
    try:
        pipe = Path(path).exists() and stat.S_ISFIFO(os.stat(path).st_mode)
        flags = os.O_NONBLOCK if pipe else 0
        number = os.open(path, os.O_RDONLY | flags)
        os.set_blocking(number, True)
        return os.fdopen(number, "rb", buffering=0)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {error.strerror}") from error


def _open_parquet(source: str | BinaryIO, name: str = "") -> Any:  # noqa: ANN401
    import_pyarrow(name or str(source))
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(source)
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(f"cannot read Parquet from {name or source}: {error}") from error


def _describe(schema: Any) -> str:  # noqa: ANN401
    return ", ".join(map(str, schema))


def _is_text(kind: Any) -> bool:  # noqa: ANN401
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(is_one(kind) for is_one in (*texts, types.is_string_view, types.is_binary_view))


def _is_comparable(kind: Any) -> bool:  # noqa: ANN401
    """Whether values of an Arrow type are texts or lists of numbers."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_type
        return bool(types.is_floating(value) or types.is_integer(value) or types.is_boolean(value))
    return _is_text(kind)
