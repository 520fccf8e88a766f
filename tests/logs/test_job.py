"""A job guesses the header, counts, and saves when it should."""

import gzip
import math
import os

import pytest

from distinctkv import SnapshotError
from distinctkv.logs import LogParser, job
from distinctkv.logs.job import Job
from distinctkv.logs.novelties import novelties

LINES = [f"2024-05-01 10:{n // 60:02}:{n % 60:02} INFO door {n} opened" for n in range(3000)]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.log"
    made.write_text(TEXT)
    return made


def new(*paths, parser=None, guessing=True, **given):
    made = Job([*map(str, paths)], LogParser() if parser is None else parser, **given)
    made.guessing = guessing
    return made


def done(made):
    for batch in made:
        made.take(batch)
    made.save()
    return made


def test_the_header_is_guessed_before_the_first_line_is_parsed(path):
    made = done(new(path, cell=1 << 12))
    assert made.header.fields == ("time", "level")
    assert [row.template for row in made.parser.templates()] == ["door <*> opened"]
    assert made.tally.headerless == 0


def test_the_header_is_kept_in_the_state(path, tmp_path):
    state = tmp_path / "app.state"
    pattern = done(new(path, state=state)).header.pattern
    again = new(path, parser=LogParser.load(state), guessing=False)
    assert again.header.pattern == pattern
    assert done(again).parser.seen == len(LINES)


def test_a_batch_knows_its_place_in_the_log(path):
    starts = []
    made = new(path, cell=1 << 12, guessing=False)
    for batch in made:
        if batch.lines:
            assert batch.lines[0] == LINES[batch.start]
        starts.append(batch.start)
        made.take(batch)
    assert len(set(starts)) > 10


def test_it_saves_after_so_many_lines(path, tmp_path, monkeypatch):
    state, saves = tmp_path / "app.state", []
    monkeypatch.setattr(job, "LINES", 1000)
    made = new(path, state=state, cell=1 << 12)
    for batch in made:
        made.take(batch)
        if state.exists() and (not saves or LogParser.load(state).seen != saves[-1]):
            saves.append(LogParser.load(state).seen)
    assert len(saves) == 2
    assert all(after - before >= 1000 for before, after in zip([0, *saves], saves, strict=False))


def test_without_a_state_nothing_is_written(path, tmp_path):
    done(new(path))
    assert [found.name for found in tmp_path.iterdir()] == ["app.log"]


def test_it_stops_when_asked_and_gives_what_it_holds(path):
    made = new(path, cell=1 << 12, stop=lambda: True)
    [batch] = made
    assert 0 < len(batch.lines) < job.SAMPLE
    assert batch.messages[0] == "door 0 opened"


def test_a_slow_pipe_does_not_wait_for_a_thousand_lines(monkeypatch):
    monkeypatch.setattr(job, "PATIENCE", 0.1)
    reading, writing = os.pipe()
    os.write(writing, "".join(f"{line}\n" for line in LINES[:3]).encode())
    looks = iter(range(600))  # so that one that waits for ever fails
    made = new(f"/dev/fd/{reading}", stop=lambda: next(looks, None) is None)
    first = next(batch for batch in made if batch.lines)  # of a pipe that is still open
    os.close(writing)
    os.close(reading)
    assert first.messages == ["door 0 opened", "door 1 opened", "door 2 opened"]
    assert next(looks, None) is not None


def test_new_templates_are_given_with_their_line(path, tmp_path):
    with path.open("a") as file:
        file.write("2024-05-02 09:00:00 WARN key lost\n")
    made = new(path)
    first, second = [found for batch in made for found in novelties(made, batch)]
    assert (first.number, first.template) == (1, "door <*> opened")
    assert (second.number, second.logged) == (3001, "2024-05-02 09:00:00")
    assert second.line == "2024-05-02 09:00:00 WARN key lost"
    assert made.history.samples[-1].opened == 2
    assert made.sightings.time(3000) == "2024-05-02 09:00:00"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_was_half_written_is_one_line(tmp_path, pack):
    path, state = tmp_path / "app.log", tmp_path / "app.state"
    content = TEXT.encode()
    for end in (content[: len(content) // 2 - 3], content[:-1], content):
        path.write_bytes(pack(end))
        parser = LogParser.load(state) if state.exists() else LogParser()
        made = done(new(path, parser=parser, state=state, guessing=not state.exists()))
        assert made.parser.seen == end.count(b"\n") + (not end.endswith(b"\n"))
    assert LogParser.load(state).seen == len(LINES)
    assert [(row.template, row.count) for row in made.parser.templates()] == [
        ("door <*> opened", len(LINES))
    ]


def test_an_archive_that_was_cut_short_is_taken_up_when_it_is_whole(tmp_path):
    path, state = tmp_path / "app.gz", tmp_path / "app.state"
    packed = gzip.compress(TEXT.encode())
    path.write_bytes(packed[: len(packed) // 2])
    half = done(new(path, state=state))
    assert 0 < half.parser.seen < len(LINES)
    path.write_bytes(packed)
    made = done(new(path, parser=LogParser.load(state), state=state, guessing=False))
    assert [row.count for row in made.parser.templates()] == [len(LINES)]


def test_what_is_half_written_is_counted_after_the_other_files(path, tmp_path):
    first, state = tmp_path / "first.log", tmp_path / "app.state"
    first.write_text(TEXT[:-1])
    made = done(new(first, path, state=state))
    assert (made.parser.seen, made.tally.unended) == (2 * len(LINES), 1)
    assert LogParser.load(state).seen == 2 * len(LINES) - 1


def test_the_rest_of_the_note_is_left_alone(path, tmp_path):
    parser, state = LogParser(), tmp_path / "app.state"
    parser.note = {"mine": 1}
    done(new(path, parser=parser, state=state))
    note = LogParser.load(state).note
    assert note.pop("mine") == 1
    assert [*note] == [job.NOTE]


SPOILT = [
    7,
    {"tally": {}},
    {"tally": {"lines": "x"}},
    {"tally": {"lines": -1}},
    {"history": [[1, 2, 3, "x", None, 0.5]]},
    {"history": [[1, 2, 3, 4, None, math.nan]]},
    {"header": ["(", []]},
    {"header": [7, []]},
    {"header": ["a{99999999999999999999}", []]},
    {"places": 7},
    {"places": [[1024, "x", 1, -1, "x"]]},
    {"places": [[1024, "x", 1, 10**20, "x"]]},
    {"sightings": {"first": [[0, 0, "9:00"]], "last": [], "coarse": [], "time": ""}},
    {"sightings": {"first": [], "last": [], "coarse": [[0, 7]], "time": ""}},
    {"learn": [1024, "x", 1, -1, ""]},
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=repr)
def test_a_note_that_makes_no_sense_is_refused(path, tmp_path, spoilt):
    state = tmp_path / "app.state"
    done(new(path, state=state))
    parser = LogParser.load(state)
    whole = isinstance(spoilt, dict) and spoilt != {"tally": {}}
    parser.note[job.NOTE] = {**parser.note[job.NOTE], **spoilt} if whole else spoilt
    with pytest.raises(SnapshotError, match="does not say how far it was"):
        new(path, parser=parser, state=state)
