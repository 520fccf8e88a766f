"""The place at which a text was left, among many."""

import gzip

import pytest

from distinctkv.logs.feed import Feed
from distinctkv.logs.sources import Source

BANNER = "the same start in every file\n" * 50


def lines_of(feed):
    return [line for batch in feed for line in batch]


@pytest.fixture
def opened(monkeypatch):
    """The names of files, each time that one is opened."""
    names, init = [], Source.__init__

    def noted(self, path, *rest):
        names.append(path)
        init(self, path, *rest)

    monkeypatch.setattr(Source, "__init__", noted)
    return names


@pytest.fixture
def alike(tmp_path):
    """Files that begin alike, each longer than the one before."""
    paths = [tmp_path / f"{number}.log" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_text(BANNER + f"line of file {number}\n" * (number + 1))
    return paths


def test_files_that_begin_alike_are_known_at_once(alike, opened):
    before = Feed([*map(str, alike)])
    lines_of(before)
    opened.clear()
    assert lines_of(Feed([*map(str, alike)], places=before.places)) == []
    assert len(opened) == len(alike)


def test_archives_that_begin_alike_are_unpacked_twice_at_most(alike, opened):
    before = Feed([*map(str, alike)])
    lines_of(before)
    for path in alike:
        packed = gzip.compress(path.read_bytes() + b"more\n")
        path.unlink()
        path.with_suffix(".gz").write_bytes(packed)
    opened.clear()
    paths = [str(path.with_suffix(".gz")) for path in alike]
    assert lines_of(Feed(paths, places=before.places)) == ["more"] * len(alike)
    assert len(opened) <= 3 * len(alike)


def test_an_offset_that_many_places_have_is_looked_at_once(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.log" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_text(BANNER + f"line of file {number:02}\n" * (1 + number % 4))
    before = Feed([*map(str, paths)])
    lines_of(before)
    looks, skip = [], Source.skip
    monkeypatch.setattr(Source, "skip", lambda *given: looks.append(given[1]) or skip(*given))
    new = tmp_path / "new.log"
    new.write_text(BANNER + "line of a new file\n" * 9)
    assert len(lines_of(Feed([str(new)], places=before.places))) == 59
    assert len(looks) <= 6


def test_a_file_has_its_own_place_though_another_is_further(tmp_path):
    short, long = tmp_path / "short.log", tmp_path / "long.log"
    short.write_text("alive\n" * 300)
    long.write_text("alive\n" * 900)
    before = Feed([str(short), str(long)])
    lines_of(before)
    short.write_text("alive\n" * 1000)
    assert len(lines_of(Feed([str(short)], places=before.places))) == 700


def test_the_place_of_an_empty_file_says_nothing_of_what_has_its_number_now(tmp_path):
    empty, full = tmp_path / "empty.log", tmp_path / "full.log"
    empty.touch()
    full.write_text(BANNER)
    before = Feed([str(empty), str(full)])
    lines_of(before)
    full.unlink()
    empty.write_bytes(gzip.compress(BANNER.encode()))
    after = Feed([str(empty)], places=before.places)
    assert lines_of(after) == []
    again = Feed([str(empty)], places=after.places)
    assert lines_of(again) == []


def test_the_place_of_a_file_that_was_empty_goes_when_it_is_read(tmp_path):
    path = tmp_path / "some.log"
    path.touch()
    before = Feed([str(path)])
    lines_of(before)
    path.write_text(BANNER)
    after = Feed([str(path)], places=before.places)
    assert len(lines_of(after)) == 50
    assert len(after.places) == 1


def test_places_that_were_not_asked_for_stay_in_their_order(alike):
    before = Feed([*map(str, alike)])
    lines_of(before)
    after = Feed([str(alike[3])], places=before.places)
    lines_of(after)
    assert after.places == [*before.places[:3], *before.places[4:], before.places[3]]
