"""A job guesses the header, counts, and saves when it should."""

import os
import threading
import time

import pytest

from distinctkv.streams import LogParser, job
from distinctkv.streams.job import Job
from distinctkv.streams.novelties import novelties

LINES = [f"2024-05-01 10:{n // 60:02}:{n % 60:02} INFO door {n} opened" for n in range(3000)]
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.log"
    made.write_text(TEXT)
    return made


def new(*paths, parser=None, guessing=True, **given):
    made = Job([*map(str, paths)], parser or LogParser(), **given)
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

    def write():
        for line in LINES[:3]:
            os.write(writing, f"{line}\n".encode())
        time.sleep(1.0)
        os.close(writing)

    thread = threading.Thread(target=write)
    thread.start()
    made = new(f"/dev/fd/{reading}")
    batches = [batch for batch in made if batch.lines]
    thread.join()
    os.close(reading)
    assert batches[0].messages == ["door 0 opened", "door 1 opened", "door 2 opened"]


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
