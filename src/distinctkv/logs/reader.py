"""Lines of files, pipes and compressed files, in chunks, with positions to resume from."""

from __future__ import annotations

import codecs
import io
import os
import select
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import sleep
from typing import NamedTuple, cast

from ..compression import Decompressed, SourceError, check_not_utf16

HEAD = 1024  # bytes at the start of a text, and before a position, by which it is recognised
CHUNK = 1 << 20  # bytes of text read at once
POLL = 0.2  # seconds between two looks at a file that is followed
MAX_LINE = 10_000  # characters kept of a line
REMEMBERED = 1_000  # file positions kept in a state
END = (1 << 62) - 1  # an offset past the end of any text


class Position(NamedTuple):
    """How far a file was read: the end of its last complete line, and what recognises the file.

    ``head`` is the SHA-256 of its first ``head_size`` bytes, ``tail`` of those before ``offset``.
    All of them count decompressed bytes.
    """

    device: int
    inode: int
    head_size: int
    head: str
    offset: int
    tail: str

    @classmethod
    def restore(cls, row: Sequence[int | str]) -> Position:
        """Read a position from a state."""
        device, inode, head_size, head, offset, tail = row
        one = cls(int(device), int(inode), int(head_size), str(head), int(offset), str(tail))
        if not 0 <= one.offset <= END or one.head_size < 0:
            raise ValueError(f"a position has sizes and an offset, got {row}")
        return one

    def may_fit(self, file: TextFile) -> bool:
        """Whether the file begins alike; a copy needs a full head, then the tail decides."""
        known = self.has_inode_of(file) or self.head_size == HEAD
        return known and _digest(file.head[: self.head_size]) == self.head

    def has_inode_of(self, file: TextFile) -> bool:
        """Whether it was read from this inode, of which the content may have changed."""
        return (self.device, self.inode) == (file.device, file.inode)


@dataclass
class LineCounts:
    """Lines read, and those among them that were changed on reading."""

    lines: int = 0
    undecodable: int = 0  # not UTF-8; invalid bytes are replaced by U+FFFD
    truncated: int = 0  # longer than MAX_LINE


class Chunk(NamedTuple):
    """Lines read together; the first ``n_known`` of them were there before the baseline."""

    lines: list[str]
    n_known: int = 0


class LineSplitter:
    r"""Splits a byte stream into decoded lines, and keeps the trailing partial line.

    Memory is bounded: of a line without an end only its first bytes are kept.

    >>> splitter = LineSplitter(LineCounts())
    >>> splitter.push(b"one\ntw"), splitter.push(b"o\r\nthr"), splitter.end()
    (['one'], ['two'], ['thr'])
    """

    def __init__(self, counts: LineCounts, max_line: int = MAX_LINE) -> None:
        self._counts, self._max_line = counts, max_line
        self._keep = 4 * max_line + 4  # bytes that hold more than max_line characters
        self._partial = b""

    @property
    def has_partial(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._partial)

    def push(self, data: bytes) -> list[str]:
        """The lines that end in these bytes."""
        data = self._partial + data
        end = data.rfind(b"\n") + 1
        self._partial = _without_middle(data[end:])[: self._keep + 1]
        return self._decode(data[:end]) if end else []

    def end(self) -> list[str]:
        """The trailing partial line, if there is one."""
        partial, self._partial = self._partial, b""
        return self._decode(partial + b"\n") if partial else []

    def _decode(self, block: bytes) -> list[str]:
        if b"\r\n" in block:
            block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            block = b"\n".join([_first_and_last(line) for line in block.split(b"\n")])
        try:
            lines = block.decode().split("\n")[:-1]
        except UnicodeDecodeError:
            lines = []
        if not lines or max(map(len, lines)) > self._max_line:
            lines = [self._decode_line(raw) for raw in block.split(b"\n")[:-1]]
        self._counts.lines += len(lines)
        return lines

    def _decode_line(self, raw: bytes) -> str:
        complete = len(raw) <= self._keep
        raw = raw[: self._keep]
        try:
            text, _ = codecs.utf_8_decode(raw, "strict", complete)
        except UnicodeDecodeError:
            text, _ = codecs.utf_8_decode(raw, "replace", complete)
            self._counts.undecodable += 1
        self._counts.truncated += not complete or len(text) > self._max_line
        return text[: self._max_line]


class TextFile:
    """One input as decompressed bytes: a file, a pipe, or standard input (``-``).

    A damaged archive is read up to the damage; ``damage`` then says what is wrong.
    """

    def __init__(self, path: str, raw: io.BufferedReader | None = None) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else path
        self._raw = raw = _open_raw(path) if raw is None else raw
        status = os.fstat(raw.fileno()) if _has_descriptor(raw) else None
        self.regular = status is not None and stat.S_ISREG(status.st_mode) and path != "-"
        self.device, self.inode = (status.st_dev, status.st_ino) if status else (0, 0)
        self.damage = ""
        self.offset = 0  # of the next byte to read
        self.line_end = 0  # end of the last complete line that was read
        self._tail = self._recent = b""  # bytes before line_end, and before offset
        self._ahead = self.head = b""
        self._fresh = True
        self._bytes_read = 0
        try:
            self._text = Decompressed(raw)
            self.compressed = self._text.compression is not None
            if self.regular:
                self.head = self._ahead = self._fill(HEAD)
            check_not_utf16(self.head, "it")
        except (SourceError, ImportError) as error:
            _close(path, raw)
            raise SourceError(f"cannot read {self.name}: {error}") from error

    @property
    def bytes_read(self) -> int:
        """Bytes of the file on disk that were read."""
        if self.regular and not self._raw.closed:
            self._bytes_read = self._text.bytes_read()
        return self._bytes_read

    def position(self) -> Position:
        """Where to resume."""
        return self._position(self.line_end, _digest(self._tail))

    def end_position(self) -> Position:
        """The end of the file as it is now."""
        size = END if self.compressed else os.fstat(self._raw.fileno()).st_size
        return self._position(size, "")

    def _position(self, offset: int, tail: str) -> Position:
        head = _digest(self.head)
        return Position(self.device, self.inode, len(self.head), head, offset, tail)

    def ready(self, seconds: float) -> bool:
        """Whether reading would not block, within this time."""
        if self.regular or self.compressed or self._fresh:
            return True
        return _has_data(self._raw, seconds)

    def read(self, size: int, *, exactly: bool = False) -> bytes:
        """The next bytes: those that are there, or exactly so many if the file has them."""
        data = self._fill(size) if exactly else self._read(size)
        self._fresh = False
        if self.offset <= len(self.head) < min(HEAD, self.offset + len(data)) and self.regular:
            self.head = (self.head[: self.offset] + data)[:HEAD]
        if end := data.rfind(b"\n") + 1:
            self.line_end = self.offset + end
            self._tail = (self._recent + data[:end])[-HEAD:]
        self._recent = (self._recent + data[-HEAD:])[-HEAD:]
        self.offset += len(data)
        return data

    def seek(self, position: Position) -> bool:
        """Go to a position; False if other bytes are before it, and the file is to be reopened.

        A compressed file goes forward only.
        """
        if not self.compressed:
            self._ahead, self._recent = b"", b""
            self.offset = max(0, position.offset - HEAD)
            self._raw.seek(self.offset)
        while self.offset < position.offset:
            if not self.read(min(position.offset - self.offset, CHUNK)):
                break
        self.end_line()
        return self.offset == position.offset and _digest(self._tail) == position.tail

    def end_line(self) -> None:
        """Count what was read last as a complete line."""
        self._tail, self.line_end = self._recent, self.offset

    def replaced(self) -> bool:
        """Whether another file has the name now, or this one was truncated: log rotation."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        same = (status.st_dev, status.st_ino) == (self.device, self.inode)
        return not same or status.st_size < self.offset

    def overwritten(self) -> bool:
        """Whether the bytes before the offset are not those that were read."""
        raw = cast(io.FileIO, self._raw.raw)  # the buffer may hold bytes from before
        here = raw.tell()
        raw.seek(self.offset - len(self._recent))
        found = raw.read(len(self._recent))
        raw.seek(here)
        return found != self._recent

    def close(self) -> None:
        """Close the file, but not standard input."""
        self._bytes_read = self.bytes_read
        _close(self.path, self._raw)

    def _fill(self, size: int) -> bytes:
        parts, missing = [], size
        while missing > 0 and (data := self._read(missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def _read(self, size: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        try:
            return b"" if self.damage else self._text.read(size) or b""
        except (SourceError, EOFError, OSError) as error:
            self.damage = str(error) or type(error).__name__
            return b""


class LineSource:
    """Chunks of lines from files, one after the other, each resumed at its last position.

    Chunks of a regular file end at multiples of ``chunk_size``, so a resumed run gives the same
    chunks as an uninterrupted one. Pipes and followed files give lines as they come, and empty
    chunks while they wait.

    With ``hold_partial``, a last line without a newline may be half written: it is not in the
    chunks, its position is before it, and `partial_lines` gives it at the end.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        follow: bool = False,
        positions: Sequence[Position] = (),
        counts: LineCounts | None = None,
        chunk_size: int = CHUNK,
        hold_partial: bool = False,
        baseline: Position | None = None,
    ) -> None:
        if follow and len(paths) > 1:
            raise SourceError(f"only one file can be followed, got {len(paths)}")
        self.paths = paths
        self.counts = LineCounts() if counts is None else counts
        self.damages: dict[str, str] = {}
        self.rotations = 0
        self.waiting = False  # for more lines at the end of the input
        self.baseline = baseline  # lines that begin before it are known
        self._follow, self._chunk_size, self._hold_partial = follow, chunk_size, hold_partial
        self._resumable, self._finished = [*positions], list[Position]()
        self._partial: list[tuple[LineSplitter, bool]] = []  # and whether the line is known
        self._file: TextFile | None = None
        self._bytes_read = 0

    def __iter__(self) -> Iterator[Chunk]:
        for path in self.paths:
            file = self._resumed((yield from self._open(path)))
            while (yield from self._read(file)):
                self.rotations += 1
                file = yield from self._reopen(path)

    @property
    def live(self) -> bool:
        """Whether lines are given as they come."""
        return self._follow or (self._file is not None and not self._file.regular)

    @property
    def names(self) -> list[str]:
        """The names of the inputs."""
        return ["standard input" if path == "-" else path for path in self.paths]

    @property
    def bytes_read(self) -> int:
        """Bytes of the files on disk that were read."""
        return self._bytes_read + (self._file.bytes_read if self._file else 0)

    @property
    def positions(self) -> list[Position]:
        """Where to resume, for the files that were read last."""
        current = [self._file.position()] if self._file and self._file.regular else []
        known = [*self._resumable, *self._finished, *current]
        return known[-max(REMEMBERED, 2 * len(self.paths)) :]

    def set_baseline(self) -> None:
        """Take the lines that are in the file now as known."""
        [path] = self.paths
        file = TextFile(path)
        self.baseline = file.end_position()
        file.close()

    def partial_lines(self) -> Chunk:
        """The last lines of files that do not end with a newline, once."""
        partial, self._partial = self._partial, []
        n_known = sum(known for _, known in partial)
        return Chunk([line for splitter, _ in partial for line in splitter.end()], n_known)

    @property
    def has_partial(self) -> bool:
        """Whether there are such lines."""
        return bool(self._partial)

    def _open(self, path: str) -> Generator[Chunk, None, TextFile]:
        """Open a file when it has data: only then is it known how it is compressed."""
        raw = _open_raw(path)
        try:
            while not _has_data(raw, POLL):
                self.waiting = True
                yield Chunk([])
        except GeneratorExit:
            _close(path, raw)
            raise
        return TextFile(path, raw)

    def _reopen(self, path: str) -> Generator[Chunk, None, TextFile]:
        """Open the file that replaced another, when it can be read."""
        while True:
            try:
                return TextFile(path)
            except SourceError:
                yield Chunk([])
                sleep(POLL)

    def _resumed(self, file: TextFile) -> TextFile:
        """The file at its last position, which is removed from the table; or at its start.

        Several files may begin alike, so the tails of all positions that may fit are compared, in
        one pass. Those of the file's own inode go first, then those after the most text.
        """
        fitting = [one for one in self._resumable if file.regular and one.may_fit(file)]
        fitting.sort(key=lambda one: one.offset)
        matching = [one for one in fitting if file.seek(one)]
        best = max(matching, key=lambda one: (one.has_inode_of(file), one.offset), default=None)
        if best is not None:
            self._resumable.remove(best)
        if best != (fitting[-1] if fitting else None):
            file.close()
            file = TextFile(file.path)
            if best is not None:
                file.seek(best)
        return file

    def _read(self, file: TextFile) -> Generator[Chunk, None, bool]:
        """The chunks of a file; whether another file replaced it."""
        self._file = file
        try:
            rotated = yield from self._chunks(file)
        finally:
            file.close()
        if file.damage:
            self.damages[file.name] = file.damage
        self._finished += [file.position()] if file.regular else []
        self._bytes_read += file.bytes_read
        self._file = None
        return rotated

    def _chunks(self, file: TextFile) -> Generator[Chunk, None, bool]:
        follow, rotated = self._follow and file.regular, False
        if follow and file.compressed:
            raise SourceError(f"{file.name} is compressed; only plain text can be followed")
        known = self._known_size(file)
        splitter = LineSplitter(self.counts)
        while True:
            if follow and not rotated and file.overwritten():
                rotated = True
                break
            start, line_start = file.offset, file.line_end
            data = self._next(file, follow)
            if data:
                self.waiting = False
                text = data if start else data.removeprefix(codecs.BOM_UTF8)
                yield _chunk(splitter.push(text), data, known - start, line_start < known)
            elif data is not None and (rotated or not follow):
                break
            elif not (rotated := follow and file.replaced()):
                self.waiting = True
                yield Chunk([])
                sleep(POLL if follow else 0)
        begun_before = file.line_end < known
        if self._hold_partial and file.regular and not rotated:
            if splitter.has_partial:
                self._partial.append((splitter, begun_before))
        else:
            file.end_line()
            yield _chunk(splitter.end(), b"", 0, begun_before)
        return rotated

    def _known_size(self, file: TextFile) -> int:
        """Bytes before the baseline, which has no tail: another inode must have been resumed."""
        baseline = self.baseline
        if baseline is None or not baseline.may_fit(file):
            return 0
        return baseline.offset if baseline.has_inode_of(file) or file.offset else 0

    def _next(self, file: TextFile, follow: bool) -> bytes | None:
        """The next bytes; none at the end; None if a pipe has nothing to read yet."""
        size = self._chunk_size
        if file.regular and not follow:
            return file.read(size - file.offset % size, exactly=True)
        return file.read(size) if file.ready(POLL) else None


def _first_and_last(line: bytes) -> bytes:
    """The first and the last of the texts that carriage returns part."""
    if b"\r" not in line:
        return line
    texts = [text for text in line.split(b"\r") if text.strip()]
    return b" ".join([*texts[:1], *texts[1:][-1:]])


def _without_middle(partial: bytes) -> bytes:
    """The same of a line that has not ended, with one carriage return between."""
    first, _, rest = partial.partition(b"\r")
    cut = rest.rstrip(b"\r").rfind(b"\r")
    return partial if cut < 0 else first + rest[cut:]


def _chunk(lines: list[str], data: bytes, n_bytes: int, first_known: bool) -> Chunk:
    """Lines that end in some data, of which the first ``n_bytes`` are before the baseline."""
    n_known = first_known + data.count(b"\n", 0, max(0, n_bytes - 1))
    return Chunk(lines, min(n_known, len(lines)) if first_known else 0)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:32]


def _open_raw(path: str) -> io.BufferedReader:
    """Open a file; a named pipe is opened at once, though nobody writes to it yet."""
    if path == "-":
        if sys.stdin is None:
            raise SourceError("standard input is closed; name a file to read")
        stdin = sys.stdin.buffer
        return io.BufferedReader(cast(io.RawIOBase, getattr(stdin, "raw", stdin)))
    try:
        return open(path, "rb", opener=_open_descriptor)
    except IsADirectoryError:
        raise SourceError(f"{path} is a folder; name a file in it") from None
    except FileNotFoundError:
        raise SourceError(f"there is no file {path}; - is standard input") from None
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def _open_descriptor(path: str, flags: int) -> int:
    if os.name == "nt":
        return os.open(path, flags)
    number = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return number


def _close(path: str, raw: io.BufferedReader) -> None:
    if path == "-":
        raw.detach()
    else:
        raw.close()


def _has_data(raw: io.BufferedReader, seconds: float) -> bool:
    """Whether there are bytes to read, or the end of the input, within this time."""
    if os.name == "nt" or not _has_descriptor(raw):
        return True
    return bool(select.select([raw], [], [], seconds)[0])


def _has_descriptor(raw: io.BufferedReader) -> bool:
    try:
        raw.fileno()
    except OSError:  # a stand-in for standard input
        return False
    return True
