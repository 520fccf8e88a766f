"""Lines are split right, files are resumed where they were left, rotation is followed."""

import gzip
import os
import struct
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.compression import SourceError
from distinctkv.logs import reader
from distinctkv.logs.reader import LineCounts, LineSource, LineSplitter, Position
from tests.logs.archives import PACKED

LINES = [f"line {number} of {'many ' * (number % 9)}" for number in range(6000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
CHUNK = 10_000
LONGEST = 8  # characters, so that lines are truncated
PARTS = st.sampled_from(
    (b"\n", b"\r\n", b"\r", b"\0", b" ", b"a", b"bee", b"\xff", b"\xe2\x82\xac", b"\xe2\x82",
     b"\xf0\x9f\x98\x80", b"x" * 40, b"y" * 35, "é".encode() * 9)
)  # fmt: skip


def expected(text):
    """The lines and counts, written without a thought for speed or memory."""
    raws = text.replace(b"\r\n", b"\n").split(b"\n")
    lines, counts = [], LineCounts()
    for raw in raws if raws[-1] else raws[:-1]:
        text = raw.decode("utf-8", "replace")
        lines.append(text[:LONGEST])
        counts.truncated += len(text) > LONGEST
    counts.lines = len(lines)
    return lines, counts


@given(
    st.lists(PARTS, max_size=40).map(b"".join) | st.binary(max_size=200),
    st.lists(st.integers(0, 200), max_size=12),
)
def test_how_bytes_are_cut_does_not_matter(text, places):
    places = sorted({min(place, len(text)) for place in places})
    splitter = LineSplitter(counts := LineCounts(), LONGEST)
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    lines = [line for piece in pieces for line in splitter.push(piece)] + splitter.end()
    wanted, wanted_counts = expected(text)
    assert lines == wanted
    assert (counts.lines, counts.truncated) == (wanted_counts.lines, wanted_counts.truncated)


def test_wrong_bytes_are_replaced_and_counted():
    splitter = LineSplitter(counts := LineCounts())
    assert splitter.push(b"\xff one\n\xe2\x82\xac two\n") == ["\ufffd one", "€ two"]
    assert counts.undecodable == 1


def test_a_line_without_an_end_takes_no_memory():
    splitter = LineSplitter(counts := LineCounts(), 1000)
    for _ in range(2000):
        assert splitter.push(b"x" * 100_000) == []
        assert sys.getsizeof(splitter._partial) < 5000  # what is held is not public
    assert splitter.push(b"\n") == ["x" * 1000]
    assert counts.truncated == 1


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app.log"
    path.write_bytes(TEXT)
    return path


def read(*paths, positions=(), **given):
    source = LineSource([*map(str, paths)], positions=positions, chunk_size=CHUNK, **given)
    return [line for chunk in source for line in chunk.lines], source


def stopped_after(path, n_chunks):
    """What a source gave in so many chunks, and its positions then."""
    source = LineSource([str(path)], chunk_size=CHUNK)
    chunks = iter(source)
    lines = [line for _ in range(n_chunks) for line in next(chunks).lines]
    return lines, [Position.restore(row) for row in source.positions]


def test_files_are_read_one_after_the_other(log, tmp_path):
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(b"last\n"))
    lines, source = read(log, other)
    assert lines == [*LINES, "last"]
    assert source.bytes_read == log.stat().st_size + other.stat().st_size


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("n_chunks", [1, 3])
def test_a_file_is_resumed_where_it_was_left(tmp_path, kind, n_chunks):
    path = tmp_path / "app.log"
    path.write_bytes(PACKED[kind](TEXT))
    before, positions = stopped_after(path, n_chunks)
    assert before + read(path, positions=positions)[0] == LINES


def test_chunks_are_those_of_an_uninterrupted_run(log):
    whole = [chunk.lines for chunk in LineSource([str(log)], chunk_size=CHUNK) if chunk.lines]
    _, positions = stopped_after(log, 2)
    rest = LineSource([str(log)], chunk_size=CHUNK, positions=positions)
    assert [chunk.lines for chunk in rest if chunk.lines] == whole[2:]


def test_only_what_was_added_is_read(log):
    positions = read(log)[1].positions
    assert read(log, positions=positions)[0] == []
    with log.open("ab") as file:
        file.write(b"more\n")
    assert read(log, positions=positions)[0] == ["more"]


def test_a_file_is_recognised_after_it_was_renamed(log, tmp_path):
    before, positions = stopped_after(log, 2)
    log.rename(tmp_path / "app.log.1")
    log.write_bytes(b"new\n")
    lines, _ = read(tmp_path / "app.log.1", log, positions=positions)
    assert before + lines == [*LINES, "new"]


def test_a_file_is_recognised_after_it_was_compressed(log, tmp_path):
    before, positions = stopped_after(log, 2)
    archive = tmp_path / "app.log.1.gz"
    archive.write_bytes(gzip.compress(TEXT))
    assert before + read(archive, positions=positions)[0] == LINES


def test_a_copy_is_recognised(log, tmp_path):
    before, positions = stopped_after(log, 2)
    copy = tmp_path / "copy.log"
    copy.write_bytes(TEXT)
    assert before + read(copy, positions=positions)[0] == LINES
    moved = [one._replace(device=one.device + 1) for one in positions]
    assert before + read(log, positions=moved)[0] == LINES


def test_a_log_that_was_copied_and_truncated_is_read_once(log, tmp_path):
    before, positions = stopped_after(log, 2)
    (tmp_path / "app.log.1").write_bytes(TEXT)
    log.write_bytes(TEXT[:2000] + b"\nnew\n")  # the same first KiB
    lines, source = read(tmp_path / "app.log.1", log, positions=positions)
    new = [*TEXT[:2000].decode().split("\n"), "new"]
    assert before + lines == [*LINES, *new]
    assert read(tmp_path / "app.log.1", log, positions=source.positions)[0] == []


def test_an_archive_is_recognised_after_it_was_unpacked(log, tmp_path):
    archive = tmp_path / "app.log.gz"
    archive.write_bytes(gzip.compress(TEXT))
    before, positions = stopped_after(archive, 2)
    assert before + read(log, positions=positions)[0] == LINES


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_that_begin_alike_are_told_apart(tmp_path, pack):
    texts = [TEXT[:2000] + b"\n" + name * 500 for name in (b"one\n", b"two\n", b"six\n")]
    logs = [tmp_path / f"{number}.log" for number in range(3)]
    copies = [tmp_path / f"{number}.copy" for number in range(3)]
    for path, copy, text in zip(logs, copies, texts, strict=True):
        path.write_bytes(text)
        copy.write_bytes(pack(text))
    positions = read(*logs)[1].positions
    for order in (copies, copies[::-1]):
        assert read(*order, positions=positions)[0] == []


def test_many_archives_that_begin_alike_are_unpacked_twice_at_most(tmp_path, monkeypatch):
    positions = []
    for number in range(9):
        path = tmp_path / f"{number}.log"
        path.write_bytes(TEXT[: 2000 * (number + 2)] + b"\n%d\n" % number)
        positions += read(path)[1].positions
    opened = []
    begin = reader.TextFile.__init__
    monkeypatch.setattr(
        reader.TextFile, "__init__", lambda *given: opened.append(given) or begin(*given)
    )
    new = tmp_path / "new.gz"
    new.write_bytes(gzip.compress(TEXT))
    assert read(new, positions=positions)[0] == LINES
    assert len(opened) == 2


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_longest_text_that_was_read_is_not_read_again(log, tmp_path, pack):
    (tmp_path / "part.log").write_bytes(TEXT[: TEXT.index(b"\n", 3000) + 1])
    positions = read(log, tmp_path / "part.log")[1].positions
    copy = tmp_path / "copy"
    copy.write_bytes(pack(TEXT))
    assert read(copy, positions=positions)[0] == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_that_only_begins_alike_is_read_from_its_start(log, tmp_path, pack):
    positions = read(log)[1].positions
    other = tmp_path / "other.log"
    other.write_bytes(pack(TEXT[:2000] + b"\nchanged\n" + TEXT))
    assert len(read(other, positions=positions)[0]) > len(LINES)


@pytest.mark.parametrize("content", [b"new\n" * 5000, TEXT[:2000] + b"\nchanged\n" + TEXT])
def test_a_file_that_was_overwritten_is_read_from_its_start(log, content):
    positions = read(log)[1].positions
    log.write_bytes(content)
    assert len(read(log, positions=positions)[0]) == content.count(b"\n")


def test_the_same_file_twice_is_read_twice(log):
    lines, source = read(log, log)
    assert lines == LINES * 2
    assert read(log, log, positions=source.positions)[0] == []


def test_as_many_files_are_known_as_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "REMEMBERED", 2)
    paths = [tmp_path / f"{number}.log" for number in range(5)]
    for path in paths:
        path.write_text(f"this is {path.name}\n")
    _, source = read(*paths)
    assert read(*paths, positions=source.positions)[0] == []
    _, source = read(paths[4], positions=source.positions)
    assert [one.inode for one in source.positions] == [path.stat().st_ino for path in paths[3:]]


def test_a_trailing_partial_line_can_be_held_back(log):
    log.write_bytes(b"one\ntw")
    assert read(log)[0] == ["one", "tw"]
    lines, source = read(log, hold_partial=True)
    assert (lines, source.partial_lines().lines) == (["one"], ["tw"])
    log.write_bytes(b"one\ntwo\n")
    assert read(log, positions=source.positions)[0] == ["two"]


@pytest.mark.parametrize(("size", "n_known"), [(0, 0), (3, 1), (4, 1), (5, 2), (8, 2), (99, 3)])
def test_lines_that_begin_before_the_baseline_are_known(log, size, n_known):
    log.write_bytes(b"one\ntwo\nthree\n")
    source = LineSource([str(log)])
    source.set_baseline()
    baseline = source.baseline._replace(offset=size)
    source = LineSource([str(log)], chunk_size=6, baseline=baseline)
    assert sum(chunk.n_known for chunk in source) == n_known


@pytest.mark.parametrize("resumed", [False, True])
def test_a_baseline_is_that_of_its_file(log, tmp_path, resumed):
    """Another file that begins alike has it only if it was resumed, so that its tail fits too."""
    positions = stopped_after(log, 2)[1]
    source = LineSource([str(log)])
    source.set_baseline()
    baseline = source.baseline
    copy = tmp_path / "copy.log"
    copy.write_bytes(TEXT)
    known = positions if resumed else ()
    source = LineSource([str(copy)], positions=known, baseline=baseline)
    chunks = [*source]
    n_lines = sum(len(chunk.lines) for chunk in chunks)
    assert sum(chunk.n_known for chunk in chunks) == (n_lines if resumed else 0)


def test_a_byte_order_mark_is_no_text(log):
    log.write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert read(log)[0] == ["one", "two"]
    log.write_bytes("one\n".encode("utf-16"))
    with pytest.raises(SourceError, match="iconv"):
        read(log)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zst"])
def test_a_damaged_archive_is_read_up_to_the_damage(log, tmp_path, kind):
    broken = tmp_path / "broken"
    broken.write_bytes(PACKED[kind](os.urandom(200_000).hex().encode() + b"\n" + TEXT)[:-100])
    lines, source = read(broken, log)
    assert lines[-len(LINES) :] == LINES
    assert list(source.damages) == [str(broken)]


def test_zst_that_begins_with_a_skippable_frame_is_read(log):
    frame = struct.pack("<2I", 0x184D2A50, 4) + b"size"  # as pzstd writes it
    log.write_bytes(frame + PACKED["zst"](b"one\n") + frame + PACKED["zst"](b"two\n"))
    assert read(log)[0] == ["one", "two"]


def test_zst_without_its_package_says_what_to_install(log, monkeypatch):
    log.write_bytes(PACKED["zst"](TEXT))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(SourceError, match="pip install"):
        read(log)


@pytest.mark.parametrize("name", [".", "none.log"])
def test_what_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(SourceError, match=r"folder|no file"):
        read(tmp_path / name)


def test_a_pipe_gives_lines_as_they_come(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    chunks = iter(LineSource([str(path)]))
    assert next(chunks).lines == []  # though nobody writes yet
    with path.open("wb", buffering=0) as pipe:
        pipe.write(b"one\ntw")
        assert next(chunk.lines for chunk in chunks if chunk.lines) == ["one"]
        assert next(chunks).lines == []
        pipe.write(b"o\n")
        assert next(chunk.lines for chunk in chunks if chunk.lines) == ["two"]
    assert [chunk.lines for chunk in chunks if chunk.lines] == []


class Follower:
    """A source that follows a file, in a thread; its lines are collected."""

    def __init__(self, path):
        self.source, self.lines = LineSource([str(path)], follow=True), []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        for chunk in self.source:
            self.lines += chunk.lines
            if self._stop.is_set():
                return

    def until(self, lines):
        end = time.monotonic() + 20
        while self.lines != lines and time.monotonic() < end:
            time.sleep(0.01)
        assert self.lines == lines

    def stop(self):
        self._stop.set()
        self._thread.join(20)


@pytest.fixture
def follow(monkeypatch):
    monkeypatch.setattr(reader, "POLL", 0.01)
    made = []

    def begin(path):
        made.append(Follower(path))
        return made[-1]

    yield begin
    for one in made:
        one.stop()


def test_a_followed_file_gives_a_line_when_it_is_complete(log, follow):
    log.write_bytes(b"one\n")
    one = follow(log)
    one.until(["one"])
    with log.open("ab", buffering=0) as file:
        file.write(b"tw")
        time.sleep(0.05)
        assert one.lines == ["one"]
        file.write(b"o\n")
        one.until(["one", "two"])


def test_a_followed_file_may_be_renamed(log, follow):
    log.write_bytes(b"one\n")
    one = follow(log)
    one.until(["one"])
    log.rename(log.with_suffix(".1"))
    with log.with_suffix(".1").open("ab") as file:
        file.write(b"two")  # the writer has not reopened it yet
    log.write_bytes(b"three\n")
    one.until(["one", "two", "three"])
    assert one.source.rotations == 1


@pytest.mark.parametrize("content", [b"two\n", b"six\nseven\n", b"six\n" * 1000])
def test_a_followed_file_may_be_overwritten(log, follow, content):
    log.write_bytes(b"one\n" * 2)
    one = follow(log)
    one.until(["one"] * 2)
    log.write_bytes(content)
    one.until(["one", "one", *content.decode().split()])


def test_a_name_that_is_taken_by_a_folder_is_waited_for(log, follow):
    log.write_bytes(b"one\n")
    one = follow(log)
    one.until(["one"])
    log.unlink()
    log.mkdir()
    time.sleep(0.05)
    log.rmdir()
    log.write_bytes(b"two\n")
    one.until(["one", "two"])


def test_what_cannot_be_followed_is_refused(log):
    with pytest.raises(SourceError, match="one file"):
        LineSource([str(log), str(log)], follow=True)
    log.write_bytes(gzip.compress(TEXT))
    with pytest.raises(SourceError, match="compressed"):
        read(log, follow=True)
