"""What a text is packed in is seen from its bytes; a place in it can be found again."""

import gzip
import io
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.sources import Source
from distinctkv.logs.unpacking import PIECE, Peeked, SourceError
from tests.logs.packing import PACKED, SKIPPED

TEXT = "".join(f"line {number}: größe {number % 7}\n" for number in range(4000)).encode()


@pytest.fixture
def opened(tmp_path):
    """Open content as a file whose name says nothing."""
    sources = []

    def open_file(content):
        path = tmp_path / f"file{len(sources)}.dat"
        path.write_bytes(content)
        sources.append(Source(str(path)))
        return sources[-1]

    yield open_file
    for source in sources:
        source.close()


@pytest.mark.parametrize("kind", PACKED)
def test_any_packing_is_read(opened, kind):
    source = opened(PACKED[kind](TEXT))
    assert source.kind == kind
    assert source.fill(len(TEXT) + 1) == TEXT
    assert source.damage == ""


@pytest.mark.parametrize("kind", PACKED)
def test_a_place_is_found_again(opened, kind):
    source = opened(PACKED[kind](TEXT))
    before = source.skip(50_001)
    assert before == TEXT[50_001 - 1024 : 50_001]
    assert source.fill(1000) == TEXT[50_001:51_001]


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zst"])
def test_archives_in_a_row_are_one_text(opened, kind):
    pack = PACKED[kind]
    assert opened(pack(b"one\n") + pack(b"two\n")).fill(100) == b"one\ntwo\n"


def test_a_byte_order_mark_is_not_text(opened):
    source = opened(b"\xef\xbb\xbfhello")
    assert source.fill(100) == b"hello"
    assert source.skip(2) == b"he"
    assert source.fill(100) == b"llo"


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zst"])
def test_a_damaged_archive_gives_what_is_whole(opened, kind):
    packed = PACKED[kind](TEXT)
    source = opened(packed[: len(packed) // 2])
    found = source.fill(len(TEXT))
    assert TEXT.startswith(found)
    assert source.damage != ""
    assert source.read(1) == b""


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
def test_what_comes_before_damage_is_given_though_it_is_short(opened, kind):
    source = opened(PACKED[kind](b"short\n") + b"what is this")
    assert source.fill(100) == b"short\n"
    assert source.damage != ""


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
def test_padding_between_archives_is_nothing(opened, kind):
    source = opened((PACKED[kind](b"line\n") + bytes(PIECE)) * 2)
    assert source.fill(100) == b"line\n" * 2
    assert source.damage == ""


@pytest.mark.parametrize("kind", sorted(PACKED))
def test_no_bytes_can_be_read_in_the_middle_of_an_archive(opened, kind):
    source = opened(PACKED[kind](TEXT))
    assert source.fill(PIECE + 10) == TEXT[: PIECE + 10]
    assert source.read(0) == b""
    assert source.fill(len(TEXT)) == TEXT[PIECE + 10 :]


def test_an_archive_with_nothing_in_it_is_damaged(opened):
    source = opened(gzip.compress(b"text")[:5])
    assert source.fill(10) == b""
    assert source.damage != ""


def test_zst_that_begins_with_a_frame_to_skip_is_read(opened):
    source = opened(2 * (SKIPPED + PACKED["zst"](TEXT)) + SKIPPED)
    assert source.kind == "zst"
    assert source.fill(2 * len(TEXT) + 1) == 2 * TEXT
    assert source.damage == ""


def test_zst_without_its_package_says_what_to_install(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(SourceError, match=r"pip install 'distinctkv\[zst\]'"):
        opened(PACKED["zst"](TEXT))


def test_what_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(SourceError, match="there is no file"):
        Source(str(tmp_path / "none"))
    with pytest.raises(SourceError, match="is a folder"):
        Source(str(tmp_path))


def test_a_file_that_may_not_be_read_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SourceError, match=r"cannot read .*: Permission denied"):
        Source(str(tmp_path / "secret.log"))


def test_a_pipe_is_read_as_it_comes(tmp_path):
    reading, writing = os.pipe()
    source = Source(f"/dev/fd/{reading}") if write(writing, b"first") else None
    assert source.read(100) == b"first"
    assert not source.ready(0.01)
    write(writing, b"second")
    assert source.ready(1)
    assert source.read(100) == b"second"
    os.close(writing)
    assert source.ready(1)
    assert source.read(100) == b""
    source.close()
    os.close(reading)


def write(pipe, text):
    return os.write(pipe, text)


@given(st.binary(max_size=30), st.lists(st.binary(min_size=1, max_size=5), min_size=1))
def test_looking_for_a_mark_takes_nothing_away(content, marks):
    stream = Peeked(io.BytesIO(content))
    found = stream.mark(*marks)
    assert (found is not None) == content.startswith(tuple(marks))
    assert b"".join(iter(stream.read, b"")) == content


@pytest.mark.parametrize("n", [100_000, 100_001, 100_002])
def test_wide_text_is_given_in_pieces_as_long_as_asked_for(tmp_path, n):
    path = tmp_path / "wide.log"
    text = "日本語のログ行です\n" * 20_000
    path.write_bytes(text.encode("utf-16"))
    source, pieces = Source(str(path)), []
    while piece := source.fill(n):
        pieces.append(piece)
    source.close()
    assert {len(piece) for piece in pieces[:-1]} == {n}
    assert b"".join(pieces).decode() == text
