"""Compressed files are told by their first bytes, read whole, and noticed when cut or damaged."""

import bz2
import gzip
import io
import lzma
import random

import pytest
import zstandard

from distinctkv.compression import DamagedFileError, Decompressed, open_compressed

PACKERS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
LINES = b"".join(
    b"line %d %s\n" % (n, random.Random(n).randbytes(9).hex().encode()) for n in range(40_000)
)


def decompressed(data):
    return Decompressed(io.BufferedReader(io.BytesIO(data)))


def test_a_plain_file_is_read_as_it_is(tmp_path):
    (tmp_path / "a.gz").write_bytes(LINES)  # the name does not decide
    with open_compressed(tmp_path / "a.gz") as file:
        assert file.compression is None
        assert file.readall() == LINES
        assert file.bytes_read() == len(LINES)


@pytest.mark.parametrize("name", PACKERS)
def test_concatenated_streams_are_one_file(name):
    packed = PACKERS[name](LINES)
    file = decompressed(packed + packed)
    assert file.compression == name
    assert file.readall() == LINES + LINES


@pytest.mark.parametrize("name", PACKERS)
def test_what_came_before_the_cut_is_returned(name):
    file, chunks = decompressed(PACKERS[name](LINES)[:-200]), []
    with pytest.raises(EOFError):
        chunks.extend(iter(lambda: file.read(4096), b""))
    data = b"".join(chunks)
    assert LINES.startswith(data)
    assert data or name == "bzip2"  # bzip2 decompresses blocks of 900 kB


@pytest.mark.parametrize("name", PACKERS)
def test_damage_is_named(name):
    packed = bytearray(PACKERS[name](LINES))
    packed[len(packed) // 2] ^= 255
    with pytest.raises(DamagedFileError, match=name):
        decompressed(bytes(packed)).readall()
