"""Open a file or a pipe that may be compressed: gzip, bzip2, xz or zstd, told by its first bytes.

The name of the file does not matter. Truncated input raises `EOFError` after everything that
could be decompressed has been returned; damaged input raises `DamagedFileError`.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from importlib import import_module
from typing import Any

from .extras import install

MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    # pzstd writes a skippable frame before each frame.
    **{bytes([number]) + b"*M\x18": "zstd" for number in range(0x50, 0x60)},
}
ARCHIVES = (".gz", ".bz2", ".xz", ".zst")  # of names, where a name tells a format inside


class SourceError(ValueError):
    """An input that cannot be read."""


class DamagedFileError(SourceError):
    """Compressed data that cannot be decompressed."""


def compression_of(head: bytes) -> str | None:
    """The compression that these first bytes tell, or None.

    >>> compression_of(gzip.compress(b"a line")[:6])
    'gzip'
    >>> compression_of(b"a line")
    """
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def check_not_utf16(head: bytes, name: str) -> None:
    """Raise if these first bytes of a text are the byte order mark of UTF-16.

    >>> check_not_utf16("a line".encode("utf-16"), "app.log")
    Traceback (most recent call last):
    distinctkv.compression.SourceError: app.log is UTF-16; convert it with iconv -f UTF-16 -t UTF-8
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError(f"{name} is UTF-16; convert it with iconv -f UTF-16 -t UTF-8")


class Decompressed(io.RawIOBase):
    """The bytes of ``raw``, decompressed; ``raw`` is closed with it.

    >>> Decompressed(io.BufferedReader(io.BytesIO(gzip.compress(b"a line")))).read(100)
    b'a line'
    """

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw = raw
        self.compression = compression_of(raw.peek(6))
        self._source = _decompressor(raw, self.compression)
        self._errors = _errors(self.compression)

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer with at most its length; 0 at the end."""
        try:
            data = self._source.read1(len(buffer))
        except self._errors as error:
            raise DamagedFileError(f"the {self.compression} data is damaged: {error}") from error
        buffer[: len(data)] = data
        return len(data)

    def bytes_read(self) -> int:
        """How many bytes of the file as it is on disk have been read, for progress."""
        return self._raw.tell()

    def close(self) -> None:
        """Close the file beneath."""
        self._raw.close()
        super().close()


def open_compressed(path: str | os.PathLike[str]) -> Decompressed:
    r"""A file, decompressed if its first bytes say so.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "no-suffix")
    >>> _ = path.write_bytes(gzip.compress(b"one\ntwo\n"))
    >>> with open_compressed(path) as file:
    ...     file.readall()
    b'one\ntwo\n'
    """
    return Decompressed(open(path, "rb"))


def _decompressor(raw: io.BufferedReader, compression: str | None) -> Any:  # noqa: ANN401
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    return _ZstdReader(raw) if compression == "zstd" else raw


class _ZstdReader:
    """Frames of zstd one after another; unlike ``stream_reader`` it notices truncation."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self._raw, self._frame, self._ready = raw, _zstandard().ZstdDecompressor(), b""
        self._object = self._frame.decompressobj()

    def read1(self, size: int) -> bytes:
        while not self._ready:
            packed = self._object.unused_data if self._object.eof else b""
            packed = packed or self._raw.read1(1 << 16)
            if not packed:
                if self._object.eof:
                    return b""
                raise EOFError("the zstd data ended before its end-of-frame marker")
            if self._object.eof:
                self._object = self._frame.decompressobj()
            self._ready = self._object.decompress(packed)
        data, self._ready = self._ready[:size], self._ready[size:]
        return data


def _errors(compression: str | None) -> tuple[type[Exception], ...]:
    if compression is None:
        return ()
    known: tuple[type[Exception], ...] = (OSError, zlib.error, lzma.LZMAError)
    return (*known, _zstandard().ZstdError) if compression == "zstd" else known


def _zstandard() -> Any:  # noqa: ANN401
    try:
        return import_module("zstandard")
    except ImportError as error:
        raise ImportError(f"zstd files need the package zstandard; {install('zst')}") from error
