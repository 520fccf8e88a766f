"""``distinctkv mcp``, as an agent sees it: over standard input and output."""

import json
import os
import sys

import pytest
from click.testing import CliRunner

from distinctkv.cli import main
from tests.logs.test_digest import log

pytest.importorskip("mcp", reason="the extra mcp is not installed")

LINES = [f"2024-05-01 10:00:{n % 60:02} INFO door {n} opened" for n in range(300)]
LINES[200] = "2024-05-01 10:00:20 ERROR key lost"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "logs"
    made.mkdir()
    (made / "app.log").write_text("".join(f"{line}\n" for line in LINES))
    quiet = [line for line in LINES if "key" not in line]
    (made / "quiet.log").write_text("".join(f"{line}\n" for line in quiet))
    (made / "loud.log").write_text("".join(f"{line}\n" for line in [*quiet, *LINES[200:201] * 40]))
    (tmp_path / "secret.log").write_text("door 1 opened\n")
    (made / "link.log").symlink_to(tmp_path / "secret.log")
    return made


def call(folder, *calls):
    """The names of the tools, and what they answer: text, and whether it is an error."""
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk():
        given = StdioServerParameters(
            command=sys.executable,
            args=["-m", "distinctkv", "mcp", str(folder)],
            env={**os.environ},
        )
        async with Client(stdio_client(given)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            answers = []
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                answers.append((result.content[0].text, bool(result.is_error)))
            return names, answers

    return anyio.run(talk)


def test_an_agent_reads_a_log(folder):
    names, answers = call(
        folder,
        ("digest", {"path": "app.log"}),
        ("new_since", {"path": "app.log", "line": 100}),
        ("diff", {"before": "quiet.log", "after": "loud.log"}),
        ("lines_of", {"path": str(folder / "app.log"), "id": 1}),
        ("lines_of", {"path": "app.log", "id": 0, "limit": 2}),
    )
    assert names == ["digest", "new_since", "diff", "lines_of"]
    assert not any(error for _, error in answers)
    whole, new, compared, one, two = (text for text, _ in answers)
    assert "299x [0] INFO door <*> opened" in whole
    assert "1x [1] ERROR key lost" in new
    assert "door" not in new.split("\n", 1)[1]
    assert "new 0 -> 40: ERROR key lost" in compared
    assert one == f"201: {LINES[200]}"
    assert two.splitlines() == [f"1: {LINES[0]}", f"2: {LINES[1]}", "more after line 2"]


def test_an_answer_is_bounded_and_says_what_was_left_out(folder):
    wide = [f"door {n} opened {'x' * 5000}" for n in range(100)]
    (folder / "wide.log").write_text("\n".join(wide))
    trace = [*LINES, "\tat a.b(C.java:7)\n" * 9000]
    (folder / "deep.log").write_text("\n".join(trace))
    (folder / "words.log").write_text("\n".join(log(5, 3000, 600)))
    _, answers = call(
        folder,
        ("lines_of", {"path": "wide.log", "id": 0}),
        ("lines_of", {"path": "deep.log", "id": 0, "after": 299}),
        ("diff", {"before": "app.log", "after": "words.log", "everything": True}),
        ("diff", {"before": "app.log", "after": "quiet.log"}),
    )
    assert not any(error for _, error in answers)
    assert all(len(text) < 20_100 for text, _ in answers)
    wide, deep, words, rare = (text for text, _ in answers)
    shown = wide.splitlines()
    assert shown[0].startswith("1: door 0 opened xxx")
    assert shown[0].endswith("... (3,017 more characters)")
    assert shown[-1] == f"more after line {len(shown) - 1}"
    assert deep.startswith("300: ")
    assert all(text.endswith(" more characters)") for text in (deep, words))
    assert "1 only in A; everything=true lists them" in rare


def test_header_and_field_are_like_those_of_the_commands(folder):
    lines = [json.dumps({"msg": "request", "what": f"door {n} opened"}) for n in range(40)]
    (folder / "app.jsonl").write_text("\n".join(lines))
    both = {"before": "app.jsonl", "after": "app.jsonl", "everything": True}
    _, answers = call(
        folder,
        ("digest", {"path": "app.jsonl", "field": "what"}),
        ("digest", {"path": "app.log", "header": r".* (?=\w+ \d+)"}),
        ("diff", both | {"field": "what"}),
        ("lines_of", {"path": "app.log", "id": 0, "header": "none", "limit": 1}),
        ("new_since", {"path": "app.log", "line": 0, "header": "("}),
        ("digest", {"path": "app.log", "field": "what", "header": "none"}),
    )
    texts = [text for text, _ in answers]
    assert [error for _, error in answers] == [False] * 4 + [True] * 2
    assert "40x [0] door <*> opened" in texts[0]
    assert "299x [0] door <*> opened" in texts[1]
    assert "same 40 -> 40: door <*> opened" in texts[2]
    assert "no regular expression" in texts[4]
    assert "exclude" in texts[5]


def test_an_argument_that_a_tool_does_not_have_is_refused(folder):
    _, [(text, error)] = call(folder, ("digest", {"path": "app.log", "lines": 3}))
    assert error
    assert "lines" in text


def test_no_file_outside_the_folders_is_read(folder):
    outside = ["../secret.log", str(folder.parent / "secret.log"), "link.log", "/etc/passwd"]
    _, answers = call(
        folder,
        *(("digest", {"path": path}) for path in [*outside, "none.log", "."]),
        ("lines_of", {"path": "app.log", "id": 77}),
    )
    assert all(error for _, error in answers)
    assert all("is outside" in text for text, _ in answers[: len(outside)])
    missing = answers[len(outside)][0]
    assert "there is no file none.log" in missing
    assert missing.endswith("files are app.log, loud.log, quiet.log")
    assert "no template has the id 77" in answers[-1][0]


def test_at_most_20_files_are_named(folder):
    for n in range(30):
        (folder / f"old{n}.log").touch()
    _, [(text, _)] = call(folder, ("digest", {"path": "none.log"}))
    assert text.count(".log") == 21
    assert text.endswith(", ...")


def test_a_folder_must_be_named_and_be_there(tmp_path):
    assert CliRunner().invoke(main, ["mcp"]).exit_code == 2
    assert CliRunner().invoke(main, ["mcp", str(tmp_path / "none")]).exit_code == 2
