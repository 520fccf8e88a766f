"""``distinctkv dedup --header``: lines of logs, compared without what stands before the message."""

import pytest

from tests.cli.test_dedup import dedup, reasons, text

MESSAGES = ["the door is open", "no such file", "the door is open", "no such file", "the end"]


def stamped(messages, start=0):
    return [
        f"2024-05-01 {n // 60:02}:{n % 60:02}:07 INFO {m}" for n, m in enumerate(messages, start)
    ]


LINES = stamped(MESSAGES * 3)
KEPT = text(LINES[n] for n in (0, 1, 4))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "app.log"
    path.write_text(text(LINES))
    return path


@pytest.mark.parametrize("header", ["auto", r"\S+ \S+ INFO ", r".* INFO (?P<message>.*)"])
def test_messages_are_compared_and_lines_are_printed(path, header):
    assert dedup(path, "--header", header, "--similarity", 0.99).stdout == KEPT
    piped = dedup("-", "--header", header, "--similarity", 0.99, content=path.read_text())
    assert piped.stdout == KEPT


def test_whole_lines_are_compared_by_default(path):
    answer = dedup(path, "--similarity", 0.99)
    assert answer.stdout == dedup(path, "--similarity", 0.99, "--header", "none").stdout
    assert answer.stdout == text(LINES)
    assert "--header auto" in answer.stderr
    assert "--header auto" not in dedup(path, "--similarity", 0.99, "--header", "none").stderr


def test_a_line_without_the_header_is_its_own_message(path):
    with path.open("a") as file:
        file.write("  at main()\nthe end\n")
    answer = dedup(path, "--header", "auto", "--similarity", 0.99, "--explain")
    assert answer.stdout == KEPT + "  at main()\n"
    assert reasons(answer)[-1]["text"] == "the end"


def test_text_without_header_is_left_as_it_is(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text(text(MESSAGES))
    assert dedup(path, "--header", "auto").stdout == text(
        ["the door is open", "no such file", "the end"]
    )


def test_the_state_knows_the_header(path, tmp_path):
    state = ("--similarity", 0.99, "--state", tmp_path / "state")
    assert dedup(path, *state, "--header", "auto").stdout == KEPT
    with path.open("a") as file:
        file.write(text(stamped(["the end", "all is well"], 99)))
    for header in ("auto", "none", "x"):
        answer = dedup(path, *state, "--header", header)
        if header == "auto":
            assert answer.stdout == text(stamped(["all is well"], 100))
        else:
            assert (answer.exit_code, answer.stdout) == (2, "")
            assert "was begun with the header" in answer.stderr
    assert dedup(path, *state).exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--header", "("), "no regular expression"),
        (("--header", "auto", "--format", "jsonl", "--field", "x"), "is for plain text"),
    ],
)
def test_what_is_no_header_is_refused(path, options, said):
    answer = dedup(path, *options)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_a_header_that_most_lines_lack_is_told(path):
    said = "15 of 15 lines do not begin with the header given"
    assert said in dedup(path, "--header", r"\S+ \[\w+\] ").stderr
    assert "warning" not in dedup(path, "--header", r"\S+ \S+ INFO ").stderr
