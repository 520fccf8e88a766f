"""``distinctkv digest`` and ``distinctkv diff``."""

import gzip
import json

import pytest
from click.testing import CliRunner

from distinctkv.cli import main
from distinctkv.logs.digest import estimate_tokens
from tests.cli.logs import run
from tests.logs.test_digest import log

LINES = log(1, 400, 60)
TEXT = "".join(f"{line}\n" for line in LINES)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "app.log"
    made.write_text(TEXT)
    return made


def call(*arguments, content=None):
    return CliRunner().invoke(main, [*map(str, arguments)], input=content)


def test_a_log_in_few_lines(path):
    found = call("digest", path)
    assert found.exit_code == 0
    assert found.stdout.startswith(f"{path}: 400 lines, ")
    counts = [line.split("x [")[0] for line in found.stdout.splitlines() if "x [" in line]
    assert sum(map(int, counts)) == len(LINES)
    assert len(call("digest", path, "--lines", 9).stdout.splitlines()) <= 9
    assert estimate_tokens(call("digest", path, "--tokens", 150).stdout) <= 150


def test_standard_input_and_archives_are_read(path, tmp_path):
    whole = call("digest", path).stdout.split("\n", 1)
    packed = tmp_path / "app.gz"
    packed.write_bytes(gzip.compress(TEXT.encode()))
    assert call("digest", packed).stdout.split("\n", 1)[1] == whole[1]
    piped = run("digest", "-", content=gzip.compress(TEXT.encode())).stdout.decode()
    assert piped.split("\n", 1) == [whole[0].replace(str(path), "standard input"), whole[1]]


def test_every_line_comes_back_by_its_id(path):
    rows = json.loads(call("digest", path, "--format", "json").stdout)["templates"]
    found = [call("digest", path, "--show", row["id"]).stdout.splitlines() for row in rows]
    assert [len(lines) for lines in found] == [row["count"] for row in rows]
    assert sorted(line for lines in found for line in lines) == sorted(LINES)
    [last] = call("digest", "-", "--show", 0, content=f"{LINES[0]}\n").stdout.splitlines()
    assert last == LINES[0]


def test_forms_and_values(path):
    assert "| ---: |" in call("digest", path, "--format", "markdown").stdout
    assert " different" in call("digest", path, "--values").stdout


def test_a_named_field_is_the_message(tmp_path):
    path = tmp_path / "app.jsonl"
    lines = [json.dumps({"msg": "request", "what": f"door {n} opened"}) for n in range(40)]
    path.write_text("\n".join(lines))
    assert "40x [0] request" in call("digest", path).stdout
    assert "40x [0] door <*> opened" in call("digest", path, "--field", "what").stdout
    rows = call("parse", path, "--field", "what").stdout
    assert json.loads(rows)["template"] == "door <*> opened"
    refused = call("parse", path, "--field", "no.such")
    assert refused.exit_code == 1
    assert "with a field no.such" in refused.stderr


def test_a_field_of_other_text_is_refused(path):
    found = call("digest", path, "--field", "msg")
    assert found.exit_code == 1
    assert "with a field msg" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--show", "999"], "ids are 0, 1, "),
        (["--tokens", "0"], "--tokens"),
        (["--format", "yaml"], "markdown"),
        (["--header", "("], "regular expression"),
        (["--header", "x", "--field", "y"], "exclude"),
    ],
)
def test_a_wrong_call_is_refused(path, arguments, word):
    found = call("digest", path, *arguments)
    assert found.exit_code == 2
    assert word in found.stderr


def test_a_damaged_archive_is_read_up_to_there(tmp_path):
    path = tmp_path / "app.gz"
    packed = gzip.compress(TEXT.encode())
    path.write_bytes(packed[: len(packed) // 2])
    found = call("digest", path)
    assert found.exit_code == 1
    assert "is damaged" in found.stderr
    assert "x [0]" in found.stdout


def test_two_logs_are_compared(path, tmp_path):
    other = tmp_path / "other.log"
    other.write_text(TEXT + "2024-05-01 11:00:00 ERROR key lost\n" * 30)
    assert "no template is clearly new" in call("diff", path, path).stdout
    found = call("diff", path, other)
    assert found.exit_code == 0
    assert "new 0 -> 30: ERROR key lost" in found.stdout
    assert "B line 401: 2024-05-01 11:00:00 ERROR key lost" in found.stdout
    assert "gone 30 -> 0" in call("diff", "-", path, content=other.read_text()).stdout
    data = json.loads(call("diff", path, other, "--json").stdout)
    assert [(row["change"], row["after"]) for row in data["rows"]] == [("new", 30)]
    every = json.loads(call("diff", path, other, "--json", "--all").stdout)["rows"]
    assert sum(row["after"] for row in every) == len(LINES) + 30
    every = call("diff", path, path, "--all").stdout
    assert every.startswith(f"A {path}: 400 messages\nB {path}: 400 messages\nsame ")
    assert not any(word in every for word in ("more", "less", "chance"))
    assert call("diff", "-", "-", content=TEXT).exit_code == 2
    assert call("diff", path, tmp_path / "none").exit_code == 2


def test_records_of_opentelemetry_are_written_and_read(path, tmp_path):
    written = tmp_path / "app.jsonl"
    found = call("parse", "--otel", path)
    assert found.exit_code == 0
    written.write_text(found.stdout)
    assert len(found.stdout.splitlines()) == len(LINES)
    first = json.loads(found.stdout.splitlines()[0])
    [record] = first["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert record["attributes"][0]["key"] == "log.record.template"
    tables = [json.loads(call("digest", one, "--format", "json").stdout) for one in (path, written)]
    rows = [[(r["template"], r["count"], r["level"]) for r in one["templates"]] for one in tables]
    assert rows[0] == rows[1]
    assert call("parse", "--otel", "--json", path).exit_code == 2
    assert call("parse", "--otel", "--follow", path).exit_code == 2


def test_traces_are_in_the_records(tmp_path):
    path = tmp_path / "app.log"
    message = "2024-05-01 10:00:00 ERROR cannot run"
    lines = [message, "IOError: no", "\tat a.b(C.java:7)"] * 20
    path.write_text("\n".join(lines))
    packed = tmp_path / "docker.jsonl"
    packed.write_text("\n".join(json.dumps({"log": f"{line}\n", "time": ""}) for line in lines))
    for one in (path, packed):
        found = call("parse", "--otel", one).stdout.splitlines()
        [record] = json.loads(found[0])["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        values = {row["key"]: row["value"]["stringValue"] for row in record["attributes"]}
        assert values["exception.stacktrace"] == "IOError: no\n\tat a.b(C.java:7)"
        assert values["exception.type"] == "IOError"
        assert len(found) == 20
        assert "with IOError (20)" in call("digest", one).stdout


def test_lines_end_in_any_way(tmp_path):
    path = tmp_path / "app.log"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    assert call("digest", path, "--show", 0).stdout.splitlines()[0] == LINES[0]
