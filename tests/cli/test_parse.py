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
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from tests.cli.logs import HASTE, log, objects, run, start
from tests.cli.terminal import on_terminal
from tests.logs.archives import PACKED

DOORS = "".join(f"2024-05-01 10:00:{n:02} INFO door {n} opened\n" for n in range(20))
# Templates that turn out to be one only when all lines are grouped anew.
MANY = "".join(f"open {name} failed\n" for name in "abcdefghijk" for _ in range(9))
MANY += "".join(f"open the {name} failed\n" for name in ("red", "big", "old"))


def parse(*arguments, content=None):
    """The command in this process."""
    return CliRunner().invoke(main, ["parse", *map(str, arguments)], input=content)


def counts(answer):
    return [row["count"] for row in objects(answer.stdout)]


@pytest.fixture
def doors(tmp_path):
    path = tmp_path / "doors.log"
    path.write_text(DOORS)
    return path


@pytest.fixture
def state(tmp_path):
    return tmp_path / "doors.state"


def shell(command, path, **env):
    """The command line in a shell that may close or redirect its streams."""
    code = f"{sys.executable} -m distinctkv {command}"
    given = {**os.environ, **env, "FILE": str(path)}
    return subprocess.run(["sh", "-c", code], capture_output=True, env=given, check=False)


def test_a_template_has_its_counts_times_and_examples(doors):
    answer = parse(doors)
    assert objects(answer.stdout) == [
        {
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
    ]
    assert "lines: 20 in" in answer.stderr
    assert "header: time, level" in answer.stderr


@pytest.mark.parametrize("kind", PACKED)
def test_compression_is_detected_by_content(tmp_path, kind):
    path = tmp_path / "data"
    path.write_bytes(PACKED[kind](DOORS.encode()))
    assert counts(parse(path)) == [20]


def test_a_pipe_can_be_compressed():
    assert counts(run("parse", "-", content=PACKED["xz"](DOORS.encode()))) == [20]


def test_standard_input_is_read_if_no_file_is_named(doors):
    assert parse(content=DOORS).stdout == parse(doors).stdout == parse("-", content=DOORS).stdout


def test_files_are_parsed_together(doors, tmp_path):
    other = tmp_path / "other.log"
    other.write_text(DOORS)
    assert counts(parse(doors, other)) == [40]


def test_the_most_frequent_come_first(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("rare\n" + "often\n" * 3 + "link is up\n" * 2)
    assert counts(parse(path)) == [3, 2, 1]
    assert counts(parse(path, "--top", 1)) == [3]


def table(path):
    printed = parse(path, "--csv", "--header", "none").stdout_bytes.decode()
    return list(csv.DictReader(io.StringIO(printed, newline="")))


@pytest.mark.parametrize("line", ['said "hello, there" 7', "a,b"])
def test_a_spreadsheet_can_read_it(tmp_path, line):
    path = tmp_path / "app.log"
    path.write_bytes(f"{line}\n{line}\n".encode())
    [row] = table(path)
    assert (row["count"], row["example"]) == ("2", line)


def test_of_a_progress_bar_the_first_and_last_text_are_the_line(tmp_path):
    path = tmp_path / "app.log"
    bar = "\r".join(f"{n}% |###|" for n in range(5_000))
    path.write_bytes(f"start\r\n{bar}\rERROR: no disk\r\nhalf\rall\n".encode())
    assert [row["example"] for row in table(path)] == [
        "start",
        "0% |###| ERROR: no disk",
        "half all",
    ]


def test_a_message_is_no_formula(tmp_path):
    path = tmp_path / "app.log"
    path.write_text('{"msg": "\\r=cmd"}\n' * 9)
    text = parse(path, "--csv").stdout_bytes.decode()
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row["example"] == "'\r=cmd"


@pytest.mark.parametrize("first", "=+-@\t")
def test_a_line_is_no_formula(tmp_path, first):
    path = tmp_path / "app.log"
    path.write_bytes(f"{first}cmd|' /C calc'!A0\n".encode())
    [row] = table(path)
    assert row["example"] == f"'{first}cmd|' /C calc'!A0"
    assert not row["template"].startswith(first)


def test_lines_that_cannot_be_read_as_they_are_are_counted(tmp_path):
    path = tmp_path / "odd.log"
    path.write_bytes(b"one\r\n\r\n\0nul\n\xff\xfe not\n" + b"x" * 10_000_000 + b"\nthe end")
    answer = parse(path, "--header", "none")
    assert answer.exit_code == 0
    assert sum(counts(answer)) == 6
    assert "truncated for their length: 1" in answer.stderr
    assert "not UTF-8: 1" in answer.stderr


@given(st.binary(max_size=300))
def test_any_bytes_are_lines(content):
    content = b"." + content  # no compression begins so
    answer = parse(content=content)
    assert answer.exit_code == 0
    assert sum(counts(answer)) == content.count(b"\n") + (not content.endswith(b"\n"))


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zst"])
@given(content=st.binary(max_size=50))
def test_what_only_begins_like_an_archive_is_damaged_and_no_more(kind, content):
    answer = parse(content=PACKED[kind](b"")[:10] + content)
    assert answer.exit_code in (0, 1)
    assert answer.exception is None or isinstance(answer.exception, SystemExit)


def test_a_damaged_archive_is_reported_and_what_comes_before_is_shown(tmp_path):
    path = tmp_path / "broken.gz"
    path.write_bytes(PACKED["gzip"](log(20_000, 0).encode())[:-20_000])
    answer = parse(path)
    assert answer.exit_code == 1
    assert objects(answer.stdout)
    assert f"{path} is damaged" in answer.stderr


WRONG = [  # arguments, exit status, what is said
    (["none.log"], 2, "no file"),
    (["."], 2, "folder"),
    (["FILE", "--header", "("], 2, "no regular expression"),
    (["FILE", "--state", "none/a.state"], 2, "no folder"),
    (["FILE", "--state", "/dev/null"], 2, "not a regular file"),
    (["FILE", "--state", "FILE"], 2, "one of the files to read"),
    (["FILE", "--gain", "5"], 2, "needs --budget"),
    (["FILE", "--budget", "5", "--gain", "nan"], 2, "--budget"),
    (["FILE", "--budget", "5", "--gain", "inf"], 2, "--budget"),
    (["FILE", "--budget", "9" * 400], 2, "--budget"),
    (["FILE", "--json", "--csv"], 2, "choose one"),
    (["FILE", "FILE", "--follow"], 2, "only one file"),
]


@pytest.mark.parametrize(("arguments", "status", "reason"), WRONG)
def test_a_wrong_call_is_refused(doors, arguments, status, reason):
    answer = parse(*(str(doors) if one == "FILE" else one for one in arguments))
    assert answer.exit_code == status
    assert reason in answer.stderr
    assert doors.read_text() == DOORS


def test_a_file_without_permission_is_refused(doors, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission" in parse(doors).stderr


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
    # A line without a time has the time of the line before it.
    assert (row["template"], row["first_time"], row["last_time"]) == ("up <*>", "mon", "tue")
    assert "without the header: 1" in answer.stderr
    assert "warning" not in answer.stderr


def test_json_lines_have_the_header_of_the_documentation():
    content = b'{"ts": "10:00:01", "level": "info", "msg": "up"}\n'
    header = r'\{"ts": "(?P<time>[^"]+)", "level": "\w+", '
    [row] = objects(run("parse", "-", "--header", header, content=content).stdout)
    assert (row["first_time"], row["examples"]) == ("10:00:01", ['"msg": "up"}'])


def test_without_a_header_the_line_is_the_message(doors):
    [row] = objects(parse(doors, "--header", "none").stdout)
    assert row["template"].endswith("INFO door <*> opened")
    assert "first_time" not in row


def test_a_header_that_is_not_found_is_reported(doors):
    doors.write_text("link is up\n" * 6 + "10:00:01 link is down\n" * 2)
    assert "header: none found; 25% of the first lines begin with a time" in parse(doors).stderr
    assert "none found" not in parse(doors, "--header", "none").stderr
    assert "check --header" in parse(doors, "--header", "nonsense").stderr


@pytest.mark.parametrize(
    "content", [b"\x89PNG\r\n\xff\xfe\n\xff\0\n", "Gerät 1 geprüft\n".encode("latin-1")]
)
def test_what_is_no_utf8_text_is_reported(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert parse(path).stderr.count("iconv") == 1


@pytest.mark.parametrize("command", [["parse"], ["watch", "--no-follow", "--alert"]])
def test_the_summary_counts_what_is_printed(command):
    answer = CliRunner().invoke(main, [*command, "-"], input=MANY)
    assert f"templates: {len(counts(parse(content=MANY)))}\n" in answer.stderr


@pytest.mark.parametrize("command", [["parse"], ["watch", "--no-follow", "--alert"]])
def test_the_rate_does_not_count_imports_and_set_up(doors, monkeypatch, command):
    module = sys.modules[f"distinctkv.cli.{command[0]}"]
    now, begin = [0.0], module.open_job

    def slow(*given, **options):
        now[0] += 100
        return begin(*given, **options)

    monkeypatch.setattr(module, "open_job", slow)
    ticks = iter(range(1000))
    monkeypatch.setattr(module, "perf_counter", lambda: now[0] + next(ticks))
    answer = CliRunner().invoke(main, [*command, str(doors)])
    assert "lines: 20 in 1.0 s (20 lines/s)" in answer.stderr


def test_the_state_is_a_parser(doors, state):
    parse(doors, "--state", state)
    assert LogParser.load(state).match("door 77 opened").id == 0


def test_only_new_lines_are_read_the_next_time(doors, state):
    parse(doors, "--state", state)
    with doors.open("a") as file:
        file.write("2024-05-02 INFO door 1 closed\n")
    answer = parse(doors, "--state", state)
    assert counts(answer) == [20, 1]
    assert "lines: 1 in" in answer.stderr
    assert ", 21 with those before" in answer.stderr


def test_lines_from_a_pipe_are_always_new(state):
    for expected in (20, 40):
        assert counts(parse("--state", state, content=DOORS)) == [expected]


def test_a_parser_that_was_saved_in_python_is_a_state(doors, state):
    parser = LogParser()
    parser.seed(["door <*> closed"])
    parser.add("door 7 opened")
    parser.save(state)
    [row] = objects(parse(doors, "--state", state).stdout)
    assert (row["template"], row["count"]) == ("door <*> opened", 21)


def test_a_file_that_is_no_state_is_refused_and_kept(doors, state):
    state.write_bytes(b"junk")
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert "delete it to start anew" in answer.stderr
    assert state.read_bytes() == b"junk"
    Deduplicator().save(state)
    assert "holds a deduplicator, not a log parser" in parse(doors, "--state", state).stderr
    parser = LogParser()
    parser.note = {"distinctkv parse": {"positions": 7}}
    parser.save(state)
    assert "does not say how far" in parse(doors, "--state", state).stderr


def test_a_state_may_be_a_link(doors, state, tmp_path):
    target = tmp_path / "target.state"
    state.symlink_to(target)
    assert parse(doors, "--state", state).exit_code == 0
    assert state.is_symlink()
    assert LogParser.load(target).seen == 20


def test_a_full_disk_is_reported(doors, state, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("distinctkv.snapshot.replace", full)
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert "No space left" in answer.stderr


@pytest.mark.parametrize("header", ["none", r"\S+ \S+ "])
def test_a_state_keeps_its_header(doors, state, header):
    parse(doors, "--state", state, "--header", header)
    assert parse(doors, "--state", state).exit_code == 0
    assert parse(doors, "--state", state, "--header", header).exit_code == 0
    answer = parse(doors, "--state", state, "--header", r"\S+ ")
    assert answer.exit_code == 1
    assert "was begun with" in answer.stderr


def test_a_budget_bounds_what_is_kept(tmp_path, seed):
    path = tmp_path / "app.log"
    path.write_text(log(2000, seed))
    answer = parse(path, "--budget", 4)
    assert len(counts(answer)) <= 4
    assert "the budget evicted" in answer.stderr


def test_a_state_keeps_its_budget(doors, state):
    parse(doors, "--state", state, "--budget", 9)
    assert parse(doors, "--state", state).exit_code == 0
    answer = parse(doors, "--state", state, "--budget", 8)
    assert answer.exit_code == 2
    assert "a budget of 9 slots" in answer.stderr


def test_a_port_in_use_is_refused(doors):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answer = parse(doors, "--metrics", taken.getsockname()[1])
    assert answer.exit_code == 2
    assert "another port" in answer.stderr


def test_a_missing_package_for_metrics_is_named(doors, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert "pip install 'distinctkv[metrics]'" in parse(doors, "--metrics", 0).stderr


def test_a_terminal_shows_a_table(doors):
    shown, status = on_terminal("parse", doors)
    assert status == 0
    for part in ("door <*> opened", "100.0%", "2024-05-01 10:00:19"):
        assert part in shown
    assert "{" not in shown


def test_a_long_table_says_what_it_leaves_out(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("".join(f"{'word ' * n}end\n" for n in range(50)))
    assert "10 more templates; --top 50 shows them all" in on_terminal("parse", path)[0]


def test_a_line_cannot_control_the_terminal(tmp_path):
    path = tmp_path / "app.log"
    path.write_text("\x1b]0;owned\x07 hello [bold]there[/bold]\n")
    shown, _ = on_terminal("parse", path)
    assert "\\x1b]0;owned\\x07 hello [bold]there[/bold]" in shown


def test_a_terminal_without_a_file_is_asked_for_one():
    shown, status = on_terminal("parse")
    assert status == 2
    assert "name a file to read" in shown


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ('parse "$FILE" >&-', b"standard output is closed"),
        ("parse <&-", b"standard input is closed"),
        ('parse "$FILE" > /dev/full', b"No space left"),
    ],
)
def test_a_stream_that_cannot_be_used_is_named(doors, command, reason):
    answer = shell(command, doors)
    assert answer.returncode == 1
    assert reason in answer.stderr
    assert b"Traceback" not in answer.stderr
    assert b"Exception" not in answer.stderr


def test_the_summary_may_have_nowhere_to_go(doors):
    answer = shell('parse "$FILE" 2>&-', doors)
    assert answer.returncode == 0
    assert len(objects(answer.stdout)) == 1


@pytest.mark.parametrize("where", ["terminal", "pipe"])
def test_the_output_is_utf8_whatever_the_locale(tmp_path, monkeypatch, where):
    path = tmp_path / "app.log"
    path.write_text("größe €\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    if where == "terminal":
        shown = on_terminal("parse", path)[0]
    else:
        shown = shell('parse "$FILE"', path).stdout.decode("utf-8")
    assert "größe €" in shown


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


def serving(*arguments):
    """A parse in a process of its own, once it serves its metrics."""
    process = start("parse", *arguments, "--metrics", 0, before=HASTE)
    assert process.stderr.readline().startswith(b"metrics: http://127.0.0.1:")
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_parse_that_is_stopped_shows_and_keeps_what_it_has(doors, state, number):
    process = serving("--follow", doors, "--state", state)
    end = time.monotonic() + 60
    while not state.exists() and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(number)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert [row["count"] for row in objects(printed)] == [20]
    assert b"Traceback" not in told
    assert LogParser.load(state).seen == 20


def test_one_run_at_a_time_uses_a_state(doors, state):
    first = serving("--follow", doors, "--state", state)
    answer = parse(doors, "--state", state)
    assert answer.exit_code == 1
    assert "in use" in answer.stderr
    first.kill()
    first.communicate(timeout=60)
    assert parse(doors, "--state", state).exit_code == 0


def test_a_named_pipe_waits_for_its_writer(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = serving(pipe)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    process = serving(pipe)
    pipe.write_text(DOORS)
    assert counts(type("answer", (), {"stdout": process.communicate(timeout=120)[0]})) == [20]


def test_help_is_short_and_complete():
    for call in (["-h"], ["parse", "-h"]):
        assert CliRunner().invoke(main, call).exit_code == 0
    listed = CliRunner().invoke(main, ["--help"]).output.partition("Commands:")[2]
    assert "watch " in listed
    assert "..." not in listed
