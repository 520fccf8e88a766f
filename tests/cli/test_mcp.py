"""``distinctkv mcp``, as an agent sees it: over standard input and output."""

import os
import sys

import pytest
from click.testing import CliRunner

from distinctkv.cli import main

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
    assert "there is no file none.log" in answers[len(outside)][0]
    assert "no template has the id 77" in answers[-1][0]


def test_a_folder_must_be_named_and_be_there(tmp_path):
    assert CliRunner().invoke(main, ["mcp"]).exit_code == 2
    assert CliRunner().invoke(main, ["mcp", str(tmp_path / "none")]).exit_code == 2
