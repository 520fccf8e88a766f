"""Batches, and going on from a place."""

import gzip
import os
import threading
import time

import pytest

from distinctkv.logs import places
from distinctkv.logs.feed import Feed
from distinctkv.logs.places import Place
from distinctkv.logs.unpacking import SourceError
from tests.logs.packing import PACKED

LINES = [f"line {number} of {'many ' * (number % 9)}" for number in range(6000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
CELL = 10_000


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "app.log"
    path.write_bytes(TEXT)
    return path


def read(*paths, places=(), **given):
    feed = Feed([*map(str, paths)], places=places, cell=CELL, **given)
    return [line for batch in feed for line in batch], feed


def test_files_are_read_one_after_the_other(log, tmp_path):
    other = tmp_path / "other.gz"
    other.write_bytes(gzip.compress(b"last\n"))
    lines, feed = read(log, other)
    assert lines == [*LINES, "last"]
    assert feed.passed == log.stat().st_size + other.stat().st_size


def stopped_after(path, n_batches):
    """A feed that was left after so many batches, what it gave, and where it was."""
    feed = Feed([str(path)], cell=CELL)
    batches = iter(feed)
    lines = [line for _ in range(n_batches) for line in next(batches)]
    return lines, [Place(*place) for place in feed.places]


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("n_batches", [1, 3])
def test_a_feed_that_was_left_goes_on_where_it_was(tmp_path, kind, n_batches):
    path = tmp_path / "app.log"
    path.write_bytes(PACKED[kind](TEXT))
    before, places = stopped_after(path, n_batches)
    after, _ = read(path, places=places)
    assert before + after == LINES


def test_batches_are_those_of_a_feed_without_a_break(log):
    whole = [batch for batch in Feed([str(log)], cell=CELL) if batch]
    before, places = stopped_after(log, 2)
    rest = [batch for batch in Feed([str(log)], cell=CELL, places=places) if batch]
    assert rest == whole[2:]
    assert before == whole[0] + whole[1]


def test_a_file_that_was_read_is_not_read_again(log):
    _, feed = read(log)
    assert read(log, places=feed.places)[0] == []


def test_of_many_files_none_is_read_again(tmp_path):
    paths = [tmp_path / f"{number}.log" for number in range(1100)]
    for path in paths:
        path.write_text(f"this is {path.name}\n")
    _, feed = read(*paths)
    new = paths[0].with_name("new.log")
    new.write_text("news\n")
    assert read(*paths, new, places=feed.places)[0] == ["news"]


def test_as_many_files_are_known_as_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "REMEMBERED", 2)
    paths = [tmp_path / f"{number}.log" for number in range(5)]
    for path in paths:
        path.write_text(f"this is {path.name}\n")
    _, feed = read(*paths)
    assert read(*paths, places=feed.places)[0] == []
    _, feed = read(paths[4], places=feed.places)
    assert [place.inode for place in feed.places] == [path.stat().st_ino for path in paths[3:]]


def test_only_what_was_added_is_read(log):
    _, feed = read(log)
    with log.open("ab") as file:
        file.write(b"more\n")
    assert read(log, places=feed.places)[0] == ["more"]


def test_a_file_is_known_after_it_was_moved_and_packed(log, tmp_path):
    _, places = stopped_after(log, 2)
    before, _ = stopped_after(log, 2)
    moved = tmp_path / "app.log.1.gz"
    moved.write_bytes(gzip.compress(log.read_bytes()))
    assert before + read(moved, places=places)[0] == LINES


def test_a_short_file_is_known_after_it_was_packed(log, tmp_path):
    log.write_bytes(b"one\ntwo\n")
    _, feed = read(log)
    moved = tmp_path / "app.log.1.gz"
    moved.write_bytes(gzip.compress(log.read_bytes()))
    log.write_bytes(b"one\n")
    assert read(moved, places=feed.places)[0] == []


def test_a_short_file_is_not_another_that_begins_like_it(log, tmp_path):
    log.write_bytes(b"one\n")
    _, feed = read(log)
    other = tmp_path / "other.log"
    other.write_bytes(b"one\nthree\n")
    assert read(other, places=feed.places)[0] == ["one", "three"]


def test_another_file_of_the_same_name_is_read_from_its_start(log):
    _, feed = read(log)
    log.write_bytes(b"new\n" * 5000)
    assert read(log, places=feed.places)[0] == ["new"] * 5000


def test_a_file_with_the_same_start_only_is_read_from_its_start(log):
    _, feed = read(log)
    log.write_bytes(TEXT[:2000] + b"\nchanged\n" + TEXT)
    assert read(log, places=feed.places)[0][-1] == LINES[-1]
    assert len(read(log, places=feed.places)[0]) > len(LINES)


def test_the_same_file_twice_is_read_twice(log):
    assert read(log, log)[0] == LINES * 2


def test_the_last_line_needs_no_newline(log):
    log.write_bytes(TEXT[:-1])
    lines, feed = read(log)
    assert lines == LINES
    assert feed.tally.unended == 1


def test_damage_is_told_and_the_next_file_is_read(log, tmp_path):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(TEXT)[:-4000])
    lines, feed = read(broken, log)
    assert lines[-len(LINES) :] == LINES
    assert list(feed.damages) == [str(broken)]


class Follower:
    """A feed on a file that grows, read in a thread."""

    def __init__(self, path):
        self.lines, self.done = [], False
        self.feed = Feed([str(path)], follow=True, cell=CELL)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for batch in self.feed:
            self.lines += batch
            if self.done:
                return

    def until(self, lines):
        """Wait until exactly these came."""
        end = time.monotonic() + 60
        while self.lines != lines and time.monotonic() < end:
            time.sleep(0.01)
        assert self.lines == lines

    def close(self):
        self.done = True
        self._thread.join(60)


@pytest.fixture
def follow():
    followers = []

    def begin(path):
        followers.append(Follower(path))
        return followers[-1]

    yield begin
    for follower in followers:
        follower.close()


def test_what_is_added_comes_when_its_line_is_whole(tmp_path, follow):
    path = tmp_path / "app.log"
    path.write_bytes(b"one\n")
    follower = follow(path)
    follower.until(["one"])
    with path.open("ab", buffering=0) as file:
        file.write(b"tw")
        time.sleep(0.5)
        assert follower.lines == ["one"]
        file.write(b"o\n")
    follower.until(["one", "two"])


def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path, follow):
    path = tmp_path / "app.log"
    path.write_bytes(b"one\ntwo\n")
    follower = follow(path)
    follower.until(["one", "two"])
    with path.open("ab") as file:
        file.write(b"last words")
    os.rename(path, tmp_path / "app.log.1")
    time.sleep(0.3)
    path.write_bytes(b"one\nthree\n")
    follower.until(["one", "two", "last words", "one", "three"])
    assert follower.feed.rotations == 1


def test_a_file_that_was_emptied_is_read_from_its_start(tmp_path, follow):
    path = tmp_path / "app.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    follower = follow(path)
    follower.until(["one", "two", "three"])
    path.write_bytes(b"one\n")
    follower.until(["one", "two", "three", "one"])


@pytest.mark.parametrize("more", [b"", b"six\n" * 1000])
def test_a_file_that_was_overwritten_with_as_much_or_more_is_read_from_its_start(
    tmp_path, follow, more
):
    path = tmp_path / "app.log"
    path.write_bytes(b"one\ntwo\n")
    follower = follow(path)
    follower.until(["one", "two"])
    with path.open("r+b", buffering=0) as file:
        file.write(b"ten\nfew\n" + more)
    follower.until(["one", "two", "ten", "few", *more.decode().split()])
    assert follower.feed.rotations == 1


def test_a_name_that_is_taken_by_what_cannot_be_read_is_waited_for(tmp_path, follow):
    path = tmp_path / "app.log"
    path.write_bytes(b"one\n")
    follower = follow(path)
    follower.until(["one"])
    path.unlink()
    path.mkdir()
    time.sleep(0.5)
    path.rmdir()
    path.write_bytes(b"two\n")
    follower.until(["one", "two"])


def test_an_archive_cannot_be_followed(tmp_path):
    path = tmp_path / "app.log"
    path.write_bytes(gzip.compress(TEXT))
    with pytest.raises(SourceError, match="is gzip; only plain text can be followed"):
        read(path, follow=True)


def test_one_file_is_followed_at_a_time(log):
    with pytest.raises(SourceError, match="only one file can be followed, got 2"):
        read(log, log, follow=True)
