"""``distinctkv parse`` on files, pipes and terminals, whatever is in them."""

import csv
import io
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.cli import main
from distinctkv.logs import LogParser
from tests.cli.logs import HASTE, log, objects, run, start
from tests.cli.terminal import on_terminal
from tests.logs.packing import PACKED

DOORS = "".join(f"2024-05-01 10:00:{n:02} INFO door {n} opened\n" for n in range(20))


def parse(*arguments, content=None):
    """The command in this process."""
    return CliRunner().invoke(main, ["parse", *map(str, arguments)], input=content)


@pytest.fixture
def doors(tmp_path):
    path = tmp_path / "doors.log"
    path.write_text(DOORS)
    return path


def test_a_template_has_its_counts_times_and_examples(doors):
    [row] = objects(parse(doors).stdout)
    assert row == {
        "id": 0,
        "template": "door <*> opened",
        "count": 20,
        "share": 1.0,
        "first_line": 1,
        "last_line": 20,
        "first_time": "2024-05-01 10:00:00",
        "last_time": "2024-05-01 10:00:19",
        "examples": ["door 0 opened"],
    }


def test_the_summary_is_told_aside(doors):
    answer = parse(doors)
    assert "lines: 20 in" in answer.stderr
    assert "header: time, level" in answer.stderr
    assert answer.exit_code == 0


@pytest.mark.parametrize("kind", PACKED)
def test_archives_are_known_by_their_bytes(tmp_path, kind):
    path = tmp_path / "data"
    path.write_bytes(PACKED[kind](DOORS.encode()))
    assert [row["count"] for row in objects(parse(path).stdout)] == [20]


def test_standard_input_is_read_if_no_file_is_named(doors):
    assert parse(content=DOORS).stdout == parse(doors).stdout == parse("-", content=DOORS).stdout


def test_files_are_parsed_together(doors, tmp_path):
    other = tmp_path / "other.log"
    other.write_text(DOORS)
    assert [row["count"] for row in objects(parse(doors, other).stdout)] == [40]


def test_the_most_frequent_come_first(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("rare\n" + "often\n" * 3 + "link is up\n" * 2)
    assert [row["template"] for row in objects(parse(path).stdout)] == [
        "often",
        "link is up",
        "rare",
    ]
    assert [row["count"] for row in objects(parse(path, "--top", 1).stdout)] == [3]


def test_a_spreadsheet_can_read_it(tmp_path):
    path = tmp_path / "app.log"
    path.write_text('said "hello, there" 7\n' * 2)
    [row] = csv.DictReader(io.StringIO(parse(path, "--csv").stdout))
    assert (row["count"], row["example"]) == ("2", 'said "hello, there" 7')


def test_a_carriage_return_does_not_part_a_row(tmp_path):
    path = tmp_path / "app.log"
    path.write_bytes(b"10%\rdone\n")
    printed = parse(path, "--csv", "--header", "none").stdout_bytes.decode()
    [row] = csv.DictReader(io.StringIO(printed, newline=""))
    assert row["example"] == "10%\rdone"


@pytest.mark.parametrize("first", "=+-@\t\r")
def test_a_line_is_no_formula(tmp_path, first):
    path = tmp_path / "app.log"
    path.write_bytes(f"{first}cmd|' /C calc'!A0\n".encode())
    printed = parse(path, "--csv", "--header", "none").stdout_bytes.decode()
    [row] = csv.DictReader(io.StringIO(printed, newline=""))
    assert row["example"] == f"'{first}cmd|' /C calc'!A0"
    assert not row["template"].startswith(first)


ODD = b"one\r\n\r\n\0nul\n\xff\xfe not text\n" + b"x" * 10_000_000 + b"\nthe end"


def test_what_is_odd_is_counted_and_never_fatal(tmp_path):
    path = tmp_path / "odd.log"
    path.write_bytes(ODD)
    answer = parse(path, "--header", "none")
    assert answer.exit_code == 0
    assert sum(row["count"] for row in objects(answer.stdout)) == 6
    for said in ("1 empty", "1 cut", "1 not UTF-8", "1 with NUL", "2 ended by CR", "1 without a"):
        assert said in answer.stderr


@given(st.binary(max_size=300))
def test_any_bytes_are_lines(content):
    content = b"." + content  # an archive's mark is no text
    answer = parse(content=content)
    assert answer.exit_code == 0
    n_lines = content.count(b"\n") + (not content.endswith(b"\n"))
    assert sum(row["count"] for row in objects(answer.stdout)) == n_lines


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zst"])
@given(content=st.binary(max_size=50))
def test_what_only_begins_like_an_archive_is_damaged_and_no_more(kind, content):
    answer = parse(content=PACKED[kind](b"")[:10] + content)
    assert answer.exit_code in (0, 1)
    assert answer.exception is None or isinstance(answer.exception, SystemExit)


def test_an_empty_file_has_no_templates(tmp_path):
    path = tmp_path / "empty.log"
    path.write_bytes(b"")
    answer = parse(path)
    assert (answer.exit_code, answer.stdout) == (0, "")


def test_a_damaged_archive_is_told_and_what_is_whole_is_shown(tmp_path):
    path = tmp_path / "broken.gz"
    path.write_bytes(PACKED["gzip"](log(20_000, 0).encode())[:-20_000])
    answer = parse(path)
    assert answer.exit_code == 1
    assert objects(answer.stdout)
    assert f"{path} is damaged, read up to there" in answer.stderr


@pytest.mark.parametrize(
    ("path", "said"), [("none.log", "there is no file"), (".", "is a folder; name a file in it")]
)
def test_what_is_no_file_is_refused(path, said):
    answer = parse(path)
    assert answer.exit_code == 2
    assert said in answer.stderr


def test_a_file_that_may_not_be_read_is_refused(doors, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    answer = parse(doors)
    assert answer.exit_code == 1
    assert "no permission" in answer.stderr


def test_a_missing_package_for_zst_is_named(tmp_path, monkeypatch):
    path = tmp_path / "app.log"
    path.write_bytes(PACKED["zst"](DOORS.encode()))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    answer = parse(path)
    assert answer.exit_code == 1
    assert "pip install 'distinctkv[zst]'" in answer.stderr


def test_a_header_may_be_given(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("#7 @mon: up 3\n#8 @tue: up 4\nup 5\n")
    answer = parse(path, "--header", r"#\d+ @(?P<time>\w+): ")
    [row] = objects(answer.stdout)
    assert (row["template"], row["first_time"], row["last_time"]) == ("up <*>", "mon", "tue")
    assert "1 without the header" in answer.stderr


def test_what_is_no_regular_expression_is_refused(doors):
    answer = parse(doors, "--header", "(")
    assert answer.exit_code == 2
    assert "is no regular expression" in answer.stderr


def test_without_a_header_the_line_is_the_message(doors):
    [row] = objects(parse(doors, "--header", "none").stdout)
    assert row["template"].endswith("INFO door <*> opened")
    assert "first_time" not in row


def test_the_state_is_a_parser(doors, tmp_path):
    state = tmp_path / "doors.state"
    parse(doors, "--state", state)
    assert LogParser.load(state).match("door 77 opened").id == 0


def test_only_new_lines_are_read_the_next_time(doors, tmp_path):
    state = tmp_path / "doors.state"
    parse(doors, "--state", state)
    with doors.open("a") as file:
        file.write("2024-05-02 INFO door 1 closed\n")
    answer = parse(doors, "--state", state)
    assert [row["count"] for row in objects(answer.stdout)] == [20, 1]
    assert "lines: 1 in" in answer.stderr
    assert ", 21 with those before" in answer.stderr


def test_lines_from_a_pipe_are_always_new(tmp_path):
    state = tmp_path / "doors.state"
    for expected in (20, 40):
        answer = parse("--state", state, content=DOORS)
        assert [row["count"] for row in objects(answer.stdout)] == [expected]


def test_a_parser_that_was_saved_in_python_is_a_state(doors, tmp_path):
    parser, state = LogParser(), tmp_path / "mine.state"
    parser.seed(["door <*> closed"])
    parser.save(state)
    assert [row["id"] for row in objects(parse(doors, "--state", state).stdout)] == [1]


@pytest.mark.parametrize(("content", "said"), [(b"junk", "is not a whole snapshot"), (b"", "not")])
def test_a_file_that_is_no_state_is_refused_and_kept(doors, tmp_path, content, said):
    state = tmp_path / "other.txt"
    state.write_bytes(content)
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert said in answer.stderr
    assert "the state cannot be used" in answer.stderr
    assert "delete it to start anew" in answer.stderr
    assert state.read_bytes() == content


def test_a_note_that_is_no_place_is_refused(doors, tmp_path):
    parser, state = LogParser(), tmp_path / "mine.state"
    parser.note = {"distinctkv parse": {"places": 7}}
    parser.save(state)
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert "does not say how far it was" in answer.stderr


def test_a_note_of_your_own_is_kept(doors, tmp_path):
    parser, state = LogParser(), tmp_path / "mine.state"
    parser.note = {"mine": 1}
    parser.save(state)
    assert parse(doors, "--state", state).exit_code == 0
    assert LogParser.load(state).note["mine"] == 1


def test_a_folder_that_is_not_there_is_refused_before_the_work(doors, tmp_path):
    answer = parse(doors, "--state", tmp_path / "none" / "a.state")
    assert answer.exit_code == 2
    assert "there is no folder" in answer.stderr


def test_a_full_disk_is_told(doors, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distinctkv.snapshot.replace", full)
    answer = parse(doors, "--state", tmp_path / "doors.state")
    assert answer.exit_code == 1
    assert "cannot write" in answer.stderr
    assert "No space left on device" in answer.stderr


def test_a_budget_bounds_what_is_kept(tmp_path, seed):
    path = tmp_path / "app.log"
    path.write_text(log(2000, seed))
    answer = parse(path, "--budget", 4)
    assert len(objects(answer.stdout)) <= 4
    assert "lines in templates that the budget did not keep" in answer.stderr


def test_a_state_keeps_its_budget(doors, tmp_path):
    state = tmp_path / "doors.state"
    parse(doors, "--state", state, "--budget", 9)
    assert parse(doors, "--state", state).exit_code == 0
    answer = parse(doors, "--state", state, "--budget", 8)
    assert answer.exit_code == 2
    assert "was begun with a budget of 9 slots; leave the option out" in answer.stderr.replace(
        "\n", " "
    )


def test_a_gain_needs_a_budget(doors):
    assert "needs --budget" in parse(doors, "--gain", 5).stderr


@pytest.mark.parametrize("options", [("5", "--gain", "nan"), ("5", "--gain", "inf"), ("9" * 400,)])
def test_a_budget_that_is_no_number_is_refused(doors, options):
    answer = parse(doors, "--budget", *options)
    assert answer.exit_code == 2
    assert "Invalid value for --budget" in answer.stderr


def test_a_port_in_use_is_refused(doors):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = parse(doors, "--metrics", taken.getsockname()[1])
    assert answer.exit_code == 2
    assert "choose another port" in answer.stderr


def test_a_terminal_shows_a_table(doors):
    shown, status = on_terminal("parse", doors)
    assert status == 0
    assert "door <*> opened" in shown
    assert "100.0%" in shown
    assert "2024-05-01 10:00:19" in shown
    assert "{" not in shown


def test_a_long_table_says_what_it_leaves_out(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("".join(f"{'word ' * n}end\n" for n in range(50)))
    assert "10 more templates; --top 50 shows them all" in on_terminal("parse", path)[0]


def test_a_line_cannot_speak_to_the_terminal(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("\x1b]0;owned\x07 hello [bold]there[/bold]\n")
    shown, _ = on_terminal("parse", path)
    assert "\\x1b]0;owned\\x07 hello [bold]there[/bold]" in shown


def test_a_terminal_without_a_file_is_asked_for_one():
    shown, status = on_terminal("parse")
    assert status == 2
    assert "name a file to read" in shown


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("".join(f"{'word ' * n}end\n" for n in range(500)))
    process = start("parse", path)
    process.stdout.read(10)
    process.stdout.close()
    told = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert "Traceback" not in told
    assert "Error" not in told


def follow(path, *options):
    """A parse that follows a file, once it has said that it serves its metrics."""
    process = start("parse", "--follow", path, "--metrics", 0, *options, before=HASTE)
    assert process.stderr.readline().startswith(b"metrics: http://127.0.0.1:")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_parse_that_is_stopped_shows_and_keeps_what_it_has(doors, tmp_path, number):
    state = tmp_path / "doors.state"
    process = follow(doors, "--state", state)
    end = time.monotonic() + 60
    while not state.exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert [row["count"] for row in objects(printed)] == [20]
    assert b"Traceback" not in told
    assert LogParser.load(state).seen == 20


def test_rows_are_utf8_whatever_the_locale(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("größe €\n", encoding="utf-8")
    given = {"env": {**os.environ, "PYTHONIOENCODING": "latin-1"}}
    printed = subprocess.run(
        [sys.executable, "-c", "from distinctkv.cli import main; main()", "parse", str(path)],
        capture_output=True,
        check=True,
        **given,
    ).stdout
    assert "größe €" in printed.decode("utf-8")


def test_a_pipe_can_be_packed():
    answer = run("parse", "-", content=PACKED["xz"](DOORS.encode()))
    assert [row["count"] for row in objects(answer.stdout)] == [20]
