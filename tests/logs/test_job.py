"""A job detects the header, resumes, saves when it should, and knows when lines were logged."""

import gzip
import itertools
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import SnapshotError
from distinctkv.logs import LogParser, job
from distinctkv.logs.headers import Header, detect_header
from distinctkv.logs.job import EVICTED, SAMPLES, Job, SeenTimes

LINES = [f"2024-05-01 10:{n // 60:02}:{n % 60:02} INFO door {n} opened" for n in range(3000)]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.log"
    made.write_text(TEXT)
    return made


def new(*paths, state=None, chunk_size=1 << 12, **given):
    parser = LogParser.load(state) if state is not None and state.exists() else LogParser()
    given = {"detect_header": True} | given
    return Job([*map(str, paths)], parser, state=state, chunk_size=chunk_size, **given)


def done(made):
    for batch in made:
        made.parse(batch)
    made.save()
    return made


def test_the_header_is_detected_before_the_first_line_is_parsed(path):
    made = done(new(path))
    assert made.header.fields == ("time", "level")
    assert [row.template for row in made.templates()] == ["door <*> opened"]
    assert made.without_header == 0


def test_the_header_is_kept_in_the_state(path, tmp_path):
    state = tmp_path / "app.state"
    pattern = done(new(path, state=state)).header.pattern
    again = new(path, state=state)
    assert again.header.pattern == pattern
    assert done(again).parser.seen == len(LINES)
    with pytest.raises(SnapshotError, match="was begun with the header time, level"):
        new(path, state=state, detect_header=False, header=Header(r"\S+ "))
    with pytest.raises(SnapshotError, match="was begun"):
        new(path, state=state, detect_header=False)


def test_the_lines_after_a_banner_give_the_header(tmp_path):
    path, state = tmp_path / "app.log", tmp_path / "app.state"
    path.write_text("Starting doors 1.2\n")
    assert done(new(path, state=state)).header is None
    path.write_text("Starting doors 1.2\n" + TEXT)
    made = done(new(path, state=state))
    assert made.header.fields == ("time", "level")
    assert len(made.templates()) == 2


@pytest.mark.parametrize("detect", [True, False])
def test_one_line_more_gives_no_header(tmp_path, detect):
    path, state = tmp_path / "app.log", tmp_path / "app.state"
    path.write_text("red\ngreen\n")
    done(new(path, state=state, detect_header=detect))
    path.write_text("red\ngreen\n" + (TEXT if not detect else "ERROR no key\n"))
    assert done(new(path, state=state)).header is None


@pytest.mark.parametrize("size", [40, 64, 1 << 12])
def test_a_message_below_its_header_has_its_level_wherever_chunks_end(tmp_path, size):
    path = tmp_path / "app.log"
    rows = [("fail", "No key"), ("info", "Door 7 opened"), ("crit", "No door")] * 20
    path.write_text("".join(f"{level}: House.Doors[7]\n      {text}\n" for level, text in rows))
    header = detect_header(path.read_text().splitlines())
    made = new(path, chunk_size=size, header=header, detect_header=False)
    found = [pair for batch in made for pair in zip(batch.levels, batch.messages, strict=True)]
    names = {"fail": "error", "info": "info", "crit": "critical"}
    assert found == [(names[level], text) for level, text in rows]


def test_a_batch_knows_its_place_in_the_log(path):
    made = new(path, detect_header=False)
    starts = set()
    for batch in made:
        assert batch.lines[:1] == LINES[batch.start : batch.start + 1][: len(batch.lines)]
        starts.add(batch.start)
        made.parse(batch)
    assert len(starts) > 10


def test_it_saves_after_so_many_lines(path, tmp_path, monkeypatch):
    state, saves = tmp_path / "app.state", [0]
    monkeypatch.setattr(job, "LINES", 1000)
    made = new(path, state=state)
    for batch in made:
        made.parse(batch)
        if state.exists() and LogParser.load(state).seen != saves[-1]:
            saves.append(LogParser.load(state).seen)
    assert len(saves) == 3
    assert all(after - before >= 1000 for before, after in itertools.pairwise(saves))


def test_it_stops_when_asked_and_gives_what_it_holds(path):
    [batch] = new(path, stop=lambda: True)
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


def test_a_new_template_is_an_alert(path):
    with path.open("a") as file:
        file.write("2024-05-02 09:00:00 WARN key lost\n")
    made = new(path)
    first, second = [alert for batch in made for alert in made.alerts(batch)]
    assert (first.number, first.template) == (1, "door <*> opened")
    assert (second.number, second.logged) == (3001, "2024-05-02 09:00:00")
    assert second.line == "2024-05-02 09:00:00 WARN key lost"
    assert 0 < second.novelty <= 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_was_half_written_is_one_line(tmp_path, pack):
    path, state = tmp_path / "app.log", tmp_path / "app.state"
    content = TEXT.encode()
    for end in (content[: len(content) // 2 - 3], content[:-1], content):
        path.write_bytes(pack(end))
        made = done(new(path, state=state))
        assert made.parser.seen == end.count(b"\n") + (not end.endswith(b"\n"))
    assert LogParser.load(state).seen == made.counts.lines == len(LINES)
    assert [(row.template, row.count) for row in made.templates()] == [
        ("door <*> opened", len(LINES))
    ]


def test_an_archive_that_was_cut_short_is_resumed_when_it_is_complete(tmp_path):
    path, state = tmp_path / "app.gz", tmp_path / "app.state"
    packed = gzip.compress(TEXT.encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert 0 < done(new(path, state=state)).parser.seen < len(LINES)
    path.write_bytes(packed)
    assert [row.count for row in done(new(path, state=state)).templates()] == [len(LINES)]


def test_a_partial_line_is_counted_after_the_other_files(path, tmp_path):
    first, state = tmp_path / "first.log", tmp_path / "app.state"
    first.write_text(TEXT[:-1])
    assert done(new(first, path, state=state)).parser.seen == 2 * len(LINES)
    assert LogParser.load(state).seen == 2 * len(LINES) - 1


def test_other_keys_of_the_note_are_left_alone(path, tmp_path):
    parser, state = LogParser(), tmp_path / "app.state"
    parser.note = {"mine": 1}
    parser.save(state)
    done(new(path, state=state))
    assert LogParser.load(state).note["mine"] == 1


SPOILT = [
    7,
    {"counts": {}},
    {"counts": {"lines": "x"}},
    {"header": ["(", []]},
    {"positions": 7},
    {"positions": [[1, 1, 1024, "x", -1, "x"]]},
    {"positions": [[1, 1, 1024, "x", math.nan, "x"]]},
    {"times": {"rows": [[0, 0, "9:00"]], "samples": [], "step": 1, "now": ""}},
    {"baseline": [1, 2]},
]


@pytest.mark.parametrize("spoilt", SPOILT, ids=repr)
def test_a_note_that_makes_no_sense_is_refused(path, spoilt):
    parser = LogParser()
    done(Job([str(path)], parser))
    good = parser.note[job.NOTE]
    parser.note[job.NOTE] = {**good, **spoilt} if spoilt != 7 else spoilt
    if spoilt == {"counts": {}}:
        del parser.note[job.NOTE]["times"]
    with pytest.raises(SnapshotError, match="does not say how far"):
        Job([str(path)], parser)


# Batches of lines: an id and a time, or none.
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(EVICTED, 5), st.none() | st.integers(0, 9)), max_size=9),
    max_size=9,
)


@given(BATCHES)
def test_first_and_last_lines_have_their_time(batches):
    seen, lines, now = SeenTimes(), [], ""
    for batch in batches:
        times = [None if time is None else str(time) for _, time in batch]
        seen.note(len(lines), [number for number, _ in batch], times)
        for (number, _), time in zip(batch, times, strict=True):
            now = time or now
            lines.append((number, now))
        seen = SeenTimes.restore(seen.state())
    time = seen.lookup()
    for number in {number for number, _ in lines} - {EVICTED}:
        places = [place for place, line in enumerate(lines) if line[0] == number]
        for place in (places[0], places[-1]):
            assert time(place) == lines[place][1]


@given(st.integers(0, 9), st.lists(st.integers(0, 3000), min_size=1, max_size=9))
def test_times_do_not_depend_on_how_lines_are_batched(start, sizes):
    whole, parts = SeenTimes(), SeenTimes()
    times = [str(n) for n in range(sum(sizes))]
    whole.note(start, [0] * len(times), times)
    done = 0
    for size in sizes:
        parts.note(start + done, [0] * size, times[done : done + size])
        done += size
    assert whole.state() == parts.state()


def test_memory_for_times_is_bounded():
    seen = SeenTimes()
    for number in range(20):
        seen.note(1000 * number, [*range(1000 * number, 1000 * number + 1000)], ["9:00"] * 1000)
        seen.prune(1, lambda one: 0 if one % 2 else None)
    state = seen.state()
    assert len(state["samples"]) <= SAMPLES
    assert len(state["rows"]) <= job.SPARE + 1004
