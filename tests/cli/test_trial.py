"""What a trial by a user found: each of these went wrong once."""

import fcntl
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from distinctkv.cli import main
from distinctkv.logs import LogParser
from tests.cli.logs import HASTE, objects, run, start
from tests.cli.terminal import on_terminal

DOORS = "".join(f"2024-05-01 10:00:{n:02} INFO door {n} opened\n" for n in range(20))
# Templates that turn out to be one only when all is worked out.
MANY = "".join(f"open {name} failed\n" for name in "abcdefghijk" for _ in range(9))
MANY += "".join(f"open the {name} failed\n" for name in ("red", "big", "old"))


def parse(*arguments, content=None):
    return CliRunner().invoke(main, ["parse", *map(str, arguments)], input=content)


@pytest.fixture
def doors(tmp_path):
    path = tmp_path / "doors.log"
    path.write_text(DOORS)
    return path


def shell(command, path, **env):
    """The command line in a shell that may close or redirect its streams."""
    code = f"{sys.executable} -m distinctkv {command}"
    given = {**os.environ, **env, "FILE": str(path)}
    return subprocess.run(["sh", "-c", code], capture_output=True, env=given, check=False)


@pytest.mark.parametrize("command", [["parse"], ["watch", "--no-follow", "--alert"]])
def test_the_summary_counts_what_is_printed(command):
    answer = CliRunner().invoke(main, [*command, "-"], input=MANY)
    n_rows = len(objects(parse(content=MANY).stdout))
    parser = LogParser()
    parser.add_many(MANY.splitlines())
    assert len(parser) != n_rows
    assert f"templates: {n_rows}\n" in answer.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_output_that_is_full_is_told(doors):
    answer = shell('parse "$FILE" > /dev/full', doors)
    assert answer.returncode == 1
    assert b"cannot write the output: No space left" in answer.stderr
    assert b"Traceback" not in answer.stderr
    assert b"Exception" not in answer.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('parse "$FILE" >&-', b"standard output is closed"),
        ("parse - <&-", b"standard input is closed"),
        ("parse <&-", b"standard input is closed"),
    ],
)
def test_a_stream_that_is_closed_is_told(doors, command, said):
    answer = shell(command, doors)
    assert answer.returncode == 1
    assert said in answer.stderr
    assert b"Traceback" not in answer.stderr


def test_the_summary_may_have_nowhere_to_go(doors):
    answer = shell('parse "$FILE" 2>&-', doors)
    assert answer.returncode == 0
    assert len(objects(answer.stdout)) == 1


@pytest.mark.parametrize("command", [["parse"], ["watch", "--no-follow"]])
def test_a_table_is_utf8_whatever_the_locale(tmp_path, monkeypatch, command):
    path = tmp_path / "app.log"
    path.write_text("größe €\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    shown, status = on_terminal(*command, path)
    assert status == 0
    assert "größe €" in shown


@pytest.mark.parametrize("other", ["none", r"\S+ "])
def test_a_state_keeps_its_header(doors, tmp_path, other):
    state, header = tmp_path / "doors.state", r"\S+ \S+ "
    parse(doors, "--state", state, "--header", header)
    assert parse(doors, "--state", state).exit_code == 0
    assert parse(doors, "--state", state, "--header", header).exit_code == 0
    answer = parse(doors, "--state", state, "--header", other)
    assert answer.exit_code == 2
    assert "was begun with the header" in answer.stderr


def test_a_header_that_was_found_is_told_by_its_fields(doors, tmp_path):
    state = tmp_path / "doors.state"
    header = next(line for line in parse(doors).stderr.splitlines() if line.startswith("header: "))
    parse(doors, "--state", state)
    answer = parse(doors, "--state", state, "--header", "none")
    assert f"was begun with the {header.replace(':', '')};" in answer.stderr


def test_a_state_without_a_header_goes_on_without_one(doors, tmp_path):
    state = tmp_path / "doors.state"
    parse(doors, "--state", state, "--header", "none")
    answer = parse(doors, "--state", state, "--header", r"\S+ ")
    assert answer.exit_code == 2
    assert "was begun with no header" in answer.stderr


def test_the_header_is_found_for_a_parser_that_was_saved_in_python(doors, tmp_path):
    parser, state = LogParser(), tmp_path / "mine.state"
    parser.add("door 7 opened")
    parser.save(state)
    [row] = objects(parse(doors, "--state", state).stdout)
    assert (row["template"], row["count"]) == ("door <*> opened", 21)


def test_two_files_cannot_be_followed(doors):
    answer = parse(doors, doors, "--follow")
    assert answer.exit_code == 2
    assert "only one file can be followed" in answer.stderr


def test_a_header_that_most_lines_lack_is_told(doors):
    said = "warning: 20 of 20 lines do not begin with the header given"
    assert said in parse(doors, "--header", "nonsense").stderr
    assert "warning" not in parse(doors, "--header", r"\S+ ").stderr


def test_binary_input_is_told_once(tmp_path):
    path = tmp_path / "picture"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\n\xff\xfe\n\xff\0\n")
    answer = parse(path)
    assert answer.exit_code == 0
    assert answer.stderr.count("looks like binary data") == 1
    assert "binary" not in parse(content=DOORS).stderr


def test_text_in_another_encoding_is_told(tmp_path):
    path = tmp_path / "old.log"
    path.write_bytes("Gerät 1 geprüft\nGerät 2 geprüft\n".encode("latin-1"))
    assert "text that is not in UTF-8; if it is text, iconv -f LATIN1" in parse(path).stderr


def test_one_run_at_a_time_uses_a_state(doors, tmp_path):
    state = tmp_path / "doors.state"
    first = start("parse", "--follow", doors, "--state", state, "--metrics", 0, before=HASTE)
    assert first.stderr.readline().startswith(b"metrics")
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert "is in use by another run" in answer.stderr
    first.kill()
    first.communicate(timeout=60)
    assert parse(doors, "--state", state).exit_code == 0
    assert not (tmp_path / "doors.state.lock").exists()


def test_a_lock_that_its_holder_removed_holds_nobody_up(doors, tmp_path, monkeypatch):
    state, calls = tmp_path / "doors.state", []
    lock = fcntl.flock

    def late(number, how):
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / "doors.state.lock").unlink()
        lock(number, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert parse(doors, "--state", state).exit_code == 0
    assert len(calls) == 2


def test_help_is_short_too():
    for given in (["-h"], ["parse", "-h"]):
        assert CliRunner().invoke(main, given).exit_code == 0


def test_the_package_can_be_run(doors):
    assert len(objects(shell('parse "$FILE"', doors).stdout)) == 1


def test_one_form_at_a_time(doors):
    answer = parse(doors, "--json", "--csv")
    assert answer.exit_code == 2
    assert "choose one" in answer.stderr


def test_an_empty_file_has_no_table(tmp_path):
    path = tmp_path / "empty.log"
    path.write_bytes(b"")
    shown, status = on_terminal("parse", path)
    assert status == 0
    assert "count" not in shown
    assert "templates: 0" in shown


def test_json_lines_have_the_header_of_the_documentation():
    content = b'{"ts": "10:00:01", "level": "info", "msg": "up"}\n'
    header = r'\{"ts": "(?P<time>[^"]+)", "level": "\w+", '
    [row] = objects(run("parse", "-", "--header", header, content=content).stdout)
    assert (row["first_time"], row["examples"]) == ("10:00:01", ['"msg": "up"}'])


def test_the_list_of_commands_is_not_cut_off():
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Commands:")[2]
    assert "watch " in listed
    assert "..." not in listed


def test_a_model_named_as_on_a_hub_is_told_how_to_be_had():
    answer = CliRunner().invoke(main, ["chat", "--model", "someone/model"])
    assert answer.exit_code == 2
    assert "hf download NAME --local-dir FOLDER" in answer.stderr
