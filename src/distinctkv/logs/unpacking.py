"""Archives and encodings as UTF-8 text; what they are, their first bytes say, not their name."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from ..compression import SourceError as SourceError
from ..extras import install

PIECE = 1 << 16  # bytes read at once where it is not known how many are there


class Readable(Protocol):
    """Gives what is there, up to ``n`` bytes, and nothing at the end."""

    def read(self, n: int, /) -> bytes:
        """Some bytes."""


class Peeked:
    """Bytes that can be looked at before they are read; those that were read are counted.

    >>> from io import BytesIO
    >>> stream = Peeked(BytesIO(b"BZh is a mark"))
    >>> stream.mark(b"PK", b"BZh"), stream.read(3), stream.passed
    (b'BZh', b'BZh', 3)
    """

    def __init__(self, inner: Readable) -> None:
        self.passed = 0
        self._inner = inner
        self._ahead = b""
        self._damage: Exception | None = None  # beyond what was looked at

    @property
    def held(self) -> bool:
        """Whether there are bytes that were looked at and not read."""
        return bool(self._ahead)

    def peek(self, n: int) -> bytes:
        """The next ``n`` bytes, or all there are before the end or some damage."""
        while len(self._ahead) < n and (piece := self._look()):
            self._ahead += piece
        return self._ahead[:n]

    def _look(self) -> bytes:
        """Some bytes ahead; of damage, only reading tells."""
        try:
            return b"" if self._damage is not None else self._inner.read(PIECE)
        except damages() as error:
            self._damage = error
            return b""

    def mark(self, *marks: bytes) -> bytes | None:
        """The mark that comes next; no more is read than it takes to know."""
        while True:
            for mark in marks:
                if self._ahead.startswith(mark):
                    return mark
            possible = any(mark.startswith(self._ahead) for mark in marks)
            wanted = len(self._ahead) + 1
            if not possible or len(self.peek(wanted)) < wanted:
                return None

    def read(self, n: int = PIECE, /) -> bytes:
        """What is there, up to ``n`` bytes."""
        if self._damage is not None and not self._ahead:
            raise self._damage
        content = self._ahead or self._inner.read(n)
        piece, self._ahead = content[:n], content[n:]  # some readers give more than n
        self.passed += len(piece)
        return piece

    def seek(self, offset: int) -> None:
        """Go to a place in a file."""
        self._ahead, self.passed = b"", offset
        cast(BinaryIO, self._inner).seek(offset)


class Text(NamedTuple):
    """UTF-8 bytes, what they were made from, and where in a plain file they begin."""

    bytes: Peeked
    kind: str
    begin: int


class _Archive(Protocol):
    def read1(self, n: int, /) -> bytes: ...


class _Packed:
    def __init__(self, unpacker: _Archive) -> None:
        self._unpacker = unpacker

    def read(self, n: int, /) -> bytes:
        return self._unpacker.read1(n)


class _Streams:
    """Streams of bzip2 or xz, one after the other, with padding between them.

    The standard library's own readers take the start of a damaged stream for the end of all.
    """

    def __init__(
        self, inner: Readable, new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]
    ) -> None:
        self._inner, self._new, self._stream = inner, new, new()

    def read1(self, n: int, /) -> bytes:
        while n:  # of no bytes, no stream comes to its end
            raw = b""
            if self._stream.eof:
                raw = self._next()
                if not raw:
                    return b""
                self._stream = self._new()
            elif self._stream.needs_input:
                raw = self._inner.read(PIECE)
                if not raw:
                    raise EOFError("it ends before its end-of-stream mark")
            if text := self._stream.decompress(raw, n):
                return text
        return b""

    def _next(self) -> bytes:
        """The first bytes of the stream that follows."""
        raw = self._stream.unused_data or self._inner.read(PIECE)
        while raw and not raw.lstrip(b"\0"):
            raw = self._inner.read(PIECE)
        return raw.lstrip(b"\0")


class _Wide:
    """UTF-16 as UTF-8; a wrong unit becomes U+FFFD."""

    def __init__(self, inner: Readable, name: str) -> None:
        self._inner = inner
        self._decoder = codecs.getincrementaldecoder(name)("replace")

    def read(self, n: int, /) -> bytes:
        while piece := self._inner.read(max(1, n // 2)):  # two bytes may become three
            if text := self._decoder.decode(piece):
                return text.encode("utf-8", "replace")
        return self._decoder.decode(b"", True).encode("utf-8", "replace")


class _Zst:
    """Frames of zst, one after the other; the package's own reader takes half a frame for all."""

    def __init__(self, inner: Readable) -> None:
        try:
            from zstandard import ZstdDecompressor
        except ImportError as error:
            raise SourceError(f"to read zst, {install('zst')}") from error
        self._inner = inner
        self._new = ZstdDecompressor().decompressobj
        self._frame, self._begun = self._new(), False
        self._raw = self._text = b""

    def read1(self, n: int, /) -> bytes:
        while not self._text:
            # Few bytes at a time: each four of them may be 128 KiB of text.
            raw = self._raw or self._inner.read(2048)
            if not raw and self._begun:
                raise EOFError("zst ends before its end-of-frame")
            if not raw:
                return b""
            self._text, self._raw, self._begun = self._frame.decompress(raw), b"", True
            if self._frame.eof:
                self._raw = self._frame.unused_data
                self._frame, self._begun = self._new(), False
        piece, self._text = self._text[:n], self._text[n:]
        return piece


_gzip = ("gzip", lambda inner: gzip.GzipFile(fileobj=inner))
_bzip2 = ("bzip2", lambda inner: _Streams(inner, bz2.BZ2Decompressor))
_zst = ("zst", _Zst)
_ARCHIVES: Mapping[bytes, tuple[str, Callable[[Any], _Archive]]] = {
    b"\x1f\x8b\x08": _gzip,
    # How well it was packed, then a block or, of nothing, the end.
    **{b"BZh%d1AY&SY" % level: _bzip2 for level in range(1, 10)},
    **{b"BZh%d\x17rE8P\x90" % level: _bzip2 for level in range(1, 10)},
    b"\xfd7zXZ\0": ("xz", lambda inner: _Streams(inner, lzma.LZMADecompressor)),
    b"\x28\xb5\x2f\xfd": _zst,
    # A frame to skip comes first where zst was packed in parallel, as by pzstd.
    **{b"%c*M\x18" % first: _zst for first in range(0x50, 0x60)},
}
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def unpack(raw: Peeked) -> Text:
    """The text in a file, whatever it is packed in."""
    text, kind, begin = raw, "plain", 0
    if found := raw.mark(*_ARCHIVES):
        kind, unpacker = _ARCHIVES[found]
        text = Peeked(_Packed(unpacker(raw)))
    if mark := text.mark(codecs.BOM_UTF8, *_WIDE):
        begin = len(text.read(len(mark)))
        if mark in _WIDE:
            kind = "UTF-16" if kind == "plain" else kind
            text = Peeked(_Wide(text, _WIDE[mark]))
    return Text(text, kind, begin)


def damages() -> tuple[type[Exception], ...]:
    """What the unpackers raise on an archive that is not whole."""
    zstandard = sys.modules.get("zstandard")
    extra = (zstandard.ZstdError,) if zstandard else ()
    return EOFError, OSError, lzma.LZMAError, zlib.error, *extra
