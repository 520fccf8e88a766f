"""A file, a pipe or an archive as one stream of text that can be left and taken up again."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from typing import BinaryIO, cast

from .unpacking import PIECE, Peeked, SourceError, damages, unpack

HEAD = 1024  # bytes at the start of a text, by which it is known again


class Source:
    """A text to read from its start or from a place in it; ``-`` is standard input.

    ``offset`` counts bytes of text: unpacked, in UTF-8. Reading a damaged archive ends where the
    damage begins, and ``damage`` says what it is.
    """

    def __init__(self, path: str, file: BinaryIO | None = None) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else path
        self._file = _open(path) if file is None else file
        status = os.fstat(self._file.fileno()) if _has_number(self._file) else None
        self.size = status.st_size if status and stat.S_ISREG(status.st_mode) else None
        self.regular = self.size is not None and path != "-"
        self.inode = status.st_ino if status is not None else 0
        self.damage = ""
        self.offset = 0
        self._raw = Peeked(self._file)
        try:
            self._text = unpack(self._raw)
            # A pipe has no place to come back to, and its first bytes may be long in coming.
            self.head = self._text.bytes.peek(HEAD) if self.regular else b""
        except SourceError as error:
            self.close()
            raise SourceError(f"cannot read {self.name}: {error}") from error

    @property
    def kind(self) -> str:
        """What the text is packed in, or plain."""
        return self._text.kind

    @property
    def length(self) -> int | None:
        """Bytes of text when it was opened; None if it must be read to know."""
        return self.size - self._text.begin if self.size is not None and self.plain else None

    @property
    def plain(self) -> bool:
        """Whether its bytes are its text."""
        return self.kind == "plain"

    @property
    def passed(self) -> int:
        """Bytes of the file that were read, packed as they are."""
        return self._raw.passed

    def ready(self, seconds: float) -> bool:
        """Whether there is something to read, or an end, within this time."""
        if self.regular or not self.plain or self._raw.held:
            return True
        return arrived(self._file, seconds)

    def read(self, n: int) -> bytes:
        """What is there, up to ``n`` bytes; nothing at the end."""
        try:
            piece = b"" if self.damage else self._text.bytes.read(n)
        except damages() as error:
            self.damage = str(error) or type(error).__name__
            return b""
        if self.offset <= len(self.head) < HEAD:
            self.head = (self.head[: self.offset] + piece)[:HEAD]
        self.offset += len(piece)
        return piece

    def fill(self, n: int) -> bytes:
        """Exactly ``n`` bytes, or fewer at the end."""
        pieces, left = [], n
        while left > 0 and (piece := self.read(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def skip(self, offset: int, before: bytes = b"") -> bytes:
        """Go to a place, and say what is before it; an archive is unpacked up to there.

        What is before the place where it is now must be given, unless that is the start.
        """
        if self.kind == "plain" and self.regular:
            self.offset, before = max(0, offset - HEAD), b""
            self._raw.seek(self._text.begin + self.offset)
        while self.offset < offset and (piece := self.read(min(offset - self.offset, PIECE))):
            before = (before + piece)[-HEAD:]
        return before

    def anew(self) -> Source:
        """The same file, opened once more; this one is closed."""
        self.close()
        return Source(self.path)

    def renewed(self) -> bool:
        """Whether another file has its name now, or this one was cut short: log rotation."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return status.st_ino != self.inode or status.st_size < self._text.begin + self.offset

    def overwritten(self, offset: int, before: bytes) -> bool:
        """Whether a plain file does not have these bytes before a place any more."""
        here = self._file.tell()
        self._file.seek(self._text.begin + offset - len(before))
        found = self._file.read(len(before))
        self._file.seek(here)
        return found != before

    def close(self) -> None:
        """Let go of the file."""
        if self.path != "-":
            self._file.close()


def open_early(path: str) -> BinaryIO:
    """A file to read; a named pipe is open at once, though nobody writes to it yet."""
    if path == "-" or not stat.S_ISFIFO(_mode(path)):
        return _open(path)
    file = _open(path, lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    os.set_blocking(file.fileno(), True)
    return file


def arrived(file: BinaryIO, seconds: float) -> bool:
    """Whether there are bytes to read, or an end, within this time."""
    if os.name == "nt" or not _has_number(file):
        return True
    return bool(select.select([file], [], [], seconds)[0])


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:  # opening it says what is wrong
        return 0


def _open(path: str, opener: Callable[[str, int], int] | None = None) -> BinaryIO:
    if path == "-":
        if sys.stdin is None:
            raise SourceError("standard input is closed; name a file to read")
        stdin = sys.stdin.buffer
        return cast(BinaryIO, getattr(stdin, "raw", stdin))
    try:
        return cast(BinaryIO, open(path, "rb", buffering=0, opener=opener))
    except IsADirectoryError:
        raise SourceError(f"{path} is a folder; name a file in it") from None
    except FileNotFoundError:
        raise SourceError(f"there is no file {path}; - is standard input") from None
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def _has_number(file: BinaryIO) -> bool:
    try:
        file.fileno()
    except OSError:  # a stand-in for standard input
        return False
    return True
