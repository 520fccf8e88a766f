"""``distinctkv dedup --state -o``: no file is cut back but the one that the state wrote."""

import signal

import pytest

from tests.cli.logs import log, run, start
from tests.cli.test_dedup import dedup, text
from tests.cli.test_merge import merge

LINES = [f"{n * n} apples and {n * 7919} pears in {n}" for n in range(300)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text(text(LINES[:100]))
    return path


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "other.txt"
    path.write_text(text(f"mine {n}" for n in range(9009)))
    return path


def add(path, lines):
    with path.open("a") as file:
        file.write(text(lines))


def refused(answer, other, said):
    assert answer.exit_code == 1
    assert said in answer.stderr
    assert other.read_text() == text(f"mine {n}" for n in range(9009))
    return True


def test_another_larger_file_is_not_cut(tmp_path, path, other):
    state = ("--similarity", 1, "--state", tmp_path / "s")
    assert dedup(path, *state, "-o", tmp_path / "out").exit_code == 0
    assert refused(dedup(path, *state, "-o", other), other, "is not what the state says")
    assert str(tmp_path / "out") in dedup(path, *state, "-o", other).stderr


def test_a_file_that_took_the_name_is_not_cut(tmp_path, path, other):
    options = ("--similarity", 1, "--state", tmp_path / "s", "-o", tmp_path / "out")
    dedup(path, *options)
    other.rename(tmp_path / "out")
    assert refused(dedup(path, *options), tmp_path / "out", "is not what the state says")


def test_a_file_that_begins_alike_is_not_cut(tmp_path):
    path, out, state = tmp_path / "in.csv", tmp_path / "out.csv", ("--state", tmp_path / "s")
    path.write_text("id,text\n1,a\n")
    assert dedup(path, "--field", "text", *state, "-o", out).exit_code == 0
    longer = tmp_path / "longer.csv"
    longer.write_text(out.read_text() + "2,mine\n")
    assert dedup(path, "--field", "text", *state, "-o", longer).exit_code == 1
    longer.replace(out)
    assert dedup(path, "--field", "text", *state, "-o", out).exit_code == 1
    assert out.read_text().endswith("2,mine\n")


def test_a_state_without_output_takes_no_file_that_has_something(tmp_path, path, other):
    state = ("--similarity", 1, "--state", tmp_path / "s")
    assert refused(dedup(path, *state, "-o", other), other, "is not empty")
    assert not (tmp_path / "s").exists()
    assert dedup(path, *state).exit_code == 0  # on standard output
    assert refused(dedup(path, *state, "-o", other), other, "delete it")


def test_a_merged_state_takes_no_file_that_has_something(tmp_path, path):
    for name in ("a", "b"):
        dedup(path, "--state", tmp_path / name, "-o", tmp_path / f"{name}.out")
    held = (tmp_path / "a.out").read_text()
    assert merge(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "a").exit_code == 0
    answer = dedup(path, "--state", tmp_path / "a", "-o", tmp_path / "a.out")
    assert "is not empty" in answer.stderr
    assert (tmp_path / "a.out").read_text() == held
    assert len(dedup(path, "--state", tmp_path / "a").stdout) == 0  # what it knows, it keeps


def test_a_run_on_standard_output_does_not_forget_the_file(tmp_path, path, other):
    state, out = ("--similarity", 1, "--state", tmp_path / "s"), tmp_path / "out"
    dedup(path, *state, "-o", out)
    add(path, LINES[100:200])
    assert dedup(path, *state, "-o", "-").stdout == text(LINES[100:200])
    assert refused(dedup(path, *state, "-o", other), other, "is not what the state says")
    add(path, LINES[200:])
    assert dedup(path, *state, "-o", out).exit_code == 0
    assert out.read_text() == text([*LINES[:100], *LINES[200:]])


def test_a_new_output_of_csv_has_its_first_line(tmp_path):
    path, state = tmp_path / "in.csv", ("--field", "text", "--state", tmp_path / "s")
    path.write_text("id,text\n1,a door\n")
    dedup(path, *state)
    add(path, ["2,some gate"])
    dedup(path, *state, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "id,text\n2,some gate\n"


def test_an_output_may_be_moved(tmp_path, path):
    state = ("--similarity", 1, "--state", tmp_path / "s")
    dedup(path, *state, "-o", tmp_path / "out")
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    add(path, LINES[100:200])
    assert dedup(path, *state, "-o", moved).exit_code == 0
    assert moved.read_text() == text(LINES[:200])


def test_what_came_after_the_last_save_is_cut_and_that_is_said(tmp_path, path):
    options = ("--similarity", 1, "--state", tmp_path / "s", "-o", tmp_path / "out")
    dedup(path, *options)
    add(tmp_path / "out", ["half a li"])
    assert "cut 10 bytes off" in dedup(path, *options).stderr
    assert (tmp_path / "out").read_text() == text(LINES[:100])


@pytest.mark.parametrize("name", ["s", "s.lock"])
def test_the_state_and_its_lock_are_no_outputs(tmp_path, path, name):
    answer = dedup(path, "--state", tmp_path / "s", "-o", tmp_path / name)
    assert answer.exit_code == 2
    assert "its lock" in answer.stderr


def test_what_went_wrong_from_the_start_leaves_nothing(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n')
    options = ("--state", tmp_path / "s", "-o", tmp_path / "out")
    assert dedup(path, "--field", "txet", *options).exit_code == 1
    assert [*tmp_path.iterdir()] == [path]
    assert dedup(path, "--field", "text", *options).exit_code == 0


def test_a_state_of_the_library_is_never_taken_back(tmp_path):
    from distinctkv.dedup import Deduplicator

    path, seen = tmp_path / "in.jsonl", Deduplicator(on_bad="skip")
    seen.add("a known thing")
    seen.save(tmp_path / "s")
    path.write_text('{"text": "a"}\n')
    options = ("--state", tmp_path / "s", "-o", tmp_path / "out")
    assert dedup(path, "--field", "txet", *options).exit_code == 1
    assert Deduplicator.load(tmp_path / "s").kept == ["a known thing"]


KILLED = """
import os, signal
from distinctkv.dedup import cutting, job
judge, left = job.Job._judge, [{batches}]
def doomed(self, records):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return judge(self, records)
job.Job._judge = doomed
cutting.CELL = 1 << 12
"""


def test_a_run_that_is_killed_before_its_first_save_is_gone_on_with(tmp_path, seed):
    path, out = tmp_path / "app.log", tmp_path / "out"
    path.write_text(log(3000, seed, header=""))
    options = ("dedup", path, "--similarity", "0.9", "--state", tmp_path / "s", "-o", out)
    killed = start(*options, before=KILLED.format(batches=20))
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert out.stat().st_size > 0
    assert run(*options).returncode == 0
    assert out.read_text() == dedup(path, "--similarity", 0.9).stdout


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_nothing_in_the_way_of_another_try(tmp_path, path, there):
    resource = pytest.importorskip("resource")
    path.write_text(text(f"{n:04} {chr(97 + n % 26) * 400}" for n in range(500)))
    out, state = tmp_path / "out", tmp_path / "state"
    if there:
        out.touch()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, limits[1]))
    try:
        answer = dedup(path, "--state", state, "-o", out, "--similarity", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.exit_code == 1
    assert f"cannot write {out}" in answer.stderr
    assert (out.exists(), state.exists()) == (there, False)
    assert dedup(path, "--state", state, "-o", out, "--similarity", 1).exit_code == 0
    assert out.read_text() == path.read_text()
