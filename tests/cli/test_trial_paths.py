"""What a second trial found about paths: links, devices, pipes, a state that is none."""

import os
import signal

import pytest
from click.testing import CliRunner

from distinctkv import Cache
from distinctkv.cli import main
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from tests.cli.logs import objects, start

DOORS = "".join(f"2024-05-01 10:00:{n:02} INFO door {n} opened\n" for n in range(20))


def command(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture
def doors(tmp_path):
    path = tmp_path / "doors.log"
    path.write_text(DOORS)
    return path


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_saving_over_a_link_writes_its_target(tmp_path):
    folder = tmp_path / "far"
    folder.mkdir()
    link, target = tmp_path / "link", folder / "target"
    link.symlink_to(target)
    for _ in range(2):
        Cache().save(link)
        assert link.is_symlink()
        assert len(Cache.load(target)) == 0
    assert [file.name for file in folder.iterdir()] == ["target"]


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        Cache().save(link)
    link.unlink()
    link.symlink_to(tmp_path / "none" / "target")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        Cache().save(link)


def test_saving_over_what_is_no_file_is_refused(pipe):
    with pytest.raises(FileExistsError, match="is not a regular file"):
        Cache().save(pipe)
    with pytest.raises(FileExistsError, match="is not a regular file"):
        Cache().save(os.devnull)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Cache().save(pipe.parent)
    assert [file.name for file in pipe.parent.iterdir()] == ["pipe"]
    assert pipe.is_fifo()


def test_merging_into_what_is_no_file_is_refused(tmp_path, pipe):
    one = tmp_path / "one"
    Cache().save(one)
    answer = command("merge", one, one, "-o", pipe)
    assert answer.exit_code == 1
    assert "is not a regular file" in answer.stderr
    assert pipe.is_fifo()


def test_a_state_that_is_no_file_is_refused_before_the_work(doors, pipe):
    for state in (pipe, os.devnull):
        for name in (["parse"], ["watch", "--no-follow"]):
            answer = command(*name, doors, "--state", state)
            assert answer.exit_code == 2
            assert "is not a regular file" in answer.stderr


def test_a_state_that_links_lead_nowhere_is_refused_before_the_work(doors, tmp_path):
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for name in (["parse"], ["watch", "--no-follow"], ["dedup", "-o", tmp_path / "out"]):
        answer = command(*name, doors, "--state", circle)
        assert answer.exit_code == 2
        assert "symbolic links" in answer.stderr


def test_a_state_may_be_a_link(doors, tmp_path):
    state, target = tmp_path / "link.state", tmp_path / "target.state"
    state.symlink_to(target)
    assert command("parse", doors, "--state", state).exit_code == 0
    assert state.is_symlink()
    assert LogParser.load(target).seen == 20


def test_a_state_that_is_an_input_is_refused_as_such(doors):
    answer = command("parse", doors, "--state", doors)
    assert answer.exit_code == 2
    assert "is one of the files to read" in answer.stderr
    assert doors.read_text() == DOORS


def test_a_state_of_another_kind_is_named(doors, tmp_path):
    state = tmp_path / "other.state"
    Deduplicator().save(state)
    answer = command("parse", doors, "--state", state)
    assert answer.exit_code == 2
    assert "holds a deduplicator, not a log parser" in answer.stderr
    assert "delete" not in answer.stderr


def test_a_header_that_is_not_found_is_told(doors):
    doors.write_text("link is up\n" * 6 + "10:00:01 link is down\n" * 2)
    told = command("parse", doors).stderr
    assert "header: none found; 25% of the first lines begin with a time" in told
    doors.write_text("link is up\n")
    assert "header: none found\n" in command("parse", doors).stderr
    assert "none found" not in command("parse", doors, "--header", "none").stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_that_nobody_writes_to_is_left_when_asked(pipe, number):
    process = start("parse", pipe, "--metrics", 0)
    assert process.stderr.readline().startswith(b"metrics")
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 128 + number


def test_a_pipe_waits_for_its_writer(pipe):
    process = start("parse", pipe, "--metrics", 0)
    assert process.stderr.readline().startswith(b"metrics")
    pipe.write_text(DOORS)
    printed, _ = process.communicate(timeout=120)
    assert [row["count"] for row in objects(printed)] == [20]


def test_a_template_whose_lines_have_no_time_has_none(doors):
    trace = "Traceback: no key\n"
    doors.write_text(trace + DOORS + trace + "door 77 opened\n")
    first, second = objects(command("parse", doors).stdout)
    times = ("2024-05-01 10:00:00", "2024-05-01 10:00:19")
    assert (first["first_time"], first["last_time"]) == times
    assert first["last_line"] == 23
    assert (second["first_time"], second["last_time"]) == (None, None)
