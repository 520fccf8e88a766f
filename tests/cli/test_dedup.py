"""``distinctkv dedup`` on files and pipes, whatever is in them."""

import csv
import io
import json
import os
import signal

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.cli import main
from distinctkv.dedup import Deduplicator, NGrams
from tests.cli.logs import run, start
from tests.logs.archives import PACKED

LINES = ["the door is open", "no such file", "the door is open!", "no such file", "the end"]
ROWS = [{"id": n, "text": line, "more": ["é", None]} for n, line in enumerate(LINES)]
KEPT = [ROWS[0], ROWS[1], ROWS[4]]


def dedup(*arguments, content=None):
    """The command in this process."""
    return CliRunner().invoke(main, ["dedup", *map(str, arguments)], input=content)


def text(lines):
    return "".join(f"{line}\n" for line in lines)


def jsonl(rows):
    return text(json.dumps(row) for row in rows)


def table(rows, separator=","):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\r\n")
    writer.writerows([["id", "text"], *([row["id"], row["text"]] for row in rows)])
    return out.getvalue()


def reasons(answer):
    return [json.loads(line) for line in answer.stderr.splitlines() if line.startswith("{")]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(ROWS))
    return path


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out"
    path.write_text("what was there")
    return path


def test_kept_records_are_printed_as_they_were(rows):
    answer = dedup(rows, "--field", "text", "--similarity", 0.7)
    assert answer.stdout == jsonl(KEPT)
    assert "records: 5 in" in answer.stderr
    assert "kept: 3, duplicates: 2" in answer.stderr
    assert answer.exit_code == 0


def test_the_reason_is_printed(rows):
    [first, second] = reasons(dedup(rows, "--field", "text", "--similarity", 0.7, "--explain"))
    assert (first["record"], first["of"], first["line"]) == (3, 1, 3)
    assert (first["text"], first["kept"]) == (LINES[2], LINES[0])
    assert 0.7 <= first["similarity"] < 1
    assert (second["record"], second["of"], second["similarity"]) == (4, 2, 1.0)


def test_lines_of_plain_text_are_records(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\none\r\n\xff\xfe\n\n\nlast")
    assert dedup(path).stdout_bytes == b"one\r\ntwo\n\xff\xfe\n\nlast\n"


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_rows_of_csv_are_records(tmp_path, separator):
    rows = [*ROWS, {"id": 7, "text": f'said "a\nb"{separator} then c'}, {"id": 8, "text": "é"}]
    path = tmp_path / "rows.csv"
    path.write_bytes(table(rows, separator).encode())
    kept = [rows[0], rows[1], *rows[4:]]
    answer = dedup(path, "--field", "text", "--similarity", 0.7)
    assert answer.stdout_bytes.decode() == table(kept, separator)


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_files_are_read_whatever_their_name(tmp_path, kind):
    path = tmp_path / "rows"
    path.write_bytes(PACKED[kind](jsonl(ROWS).encode()))
    answer = dedup(path, "--field", "text", "--similarity", 0.7)
    assert answer.stdout == jsonl(KEPT)


def test_a_truncated_file_is_read_up_to_there_and_that_is_said(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(PACKED["gzip"](jsonl(ROWS[:2]).encode())[:-8])
    answer = dedup(path)
    assert (answer.exit_code, answer.stdout) == (1, jsonl(ROWS[:2]))
    assert f"{path} is damaged" in answer.stderr
    path.write_bytes(path.read_bytes()[:9])
    answer = dedup(path)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert f"{path} is damaged" in answer.stderr


@pytest.mark.parametrize("content", [jsonl(ROWS), table(ROWS)])
def test_the_format_of_standard_input_is_detected(content):
    answer = dedup("-", "--field", "text", content=content)
    assert "kept: 4, duplicates: 1" in answer.stderr


CHOICES = {
    "the field text": (jsonl([{"text": "a", "body": "b"}]), "'text'"),
    "the only field with a text": (jsonl([{"id": 1, "body": "b", "v": [1]}]), "'body'"),
    "the column text": ("id,text\n1,a\n", "'text'"),
    "the only column": ("body\na\n", "'body'"),
}


@pytest.mark.parametrize(("content", "field"), CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("piped", [False, True])
def test_a_field_is_chosen_and_named_if_none_is_given(tmp_path, content, field, piped):
    path = tmp_path / ("rows.jsonl" if content.startswith("{") else "rows.csv")
    path.write_text(content)
    form = ("--format", "csv") if path.suffix == ".csv" else ()
    answer = dedup("-", *form, content=content) if piped else dedup(path)
    assert (answer.exit_code, answer.stdout) == (0, content)
    assert f"comparing the field {field}" in answer.stderr


@pytest.mark.parametrize("content", [jsonl([{"title": "a", "body": "b"}]), "id,body\n1,a\n"])
def test_a_field_that_cannot_be_chosen_is_asked_for(tmp_path, content):
    path = tmp_path / ("rows.jsonl" if content.startswith("{") else "rows.csv")
    path.write_text(content)
    answer = dedup(path)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "'body'" in answer.stderr
    assert "--field" in answer.stderr
    assert dedup(path, "--format", "text").stdout == content


def test_vectors_in_a_field_are_compared_as_they_are(tmp_path):
    vectors = [[1.0, 0.0], [0.0, 2.0], [3.0, 0.1], [0, 0], [1], ["x", "y"], [float("nan"), 1.0]]
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl({"v": vector} for vector in vectors))
    answer = dedup(path, "--field", "v", "--explain")
    assert answer.stdout == jsonl([{"v": [1.0, 0.0]}, {"v": [0.0, 2.0]}])
    assert "rejected: 4" in answer.stderr
    assert [one.get("of") for one in reasons(answer)] == [1, None, None, None, None]


BAD = {
    "{": "not JSON",
    "[" * 9999: "not JSON",
    "[1, 2]": "list, not an object",
    "null": "not an object",
    '{"other": 1}': "the field 'v' is missing; it has 'other'",
    '{"v": null}': "the field 'v' is empty",
    '{"v": 7}': "the field 'v' is int",
    '{"v": ["x"]}': "a vector of numbers",
    '{"v": [1.0]}': "it has 1 numbers",
    '{"v": [0, 0]}': "all zeros",
    '{"v": [1, NaN]}': "nan",
    '{"v": "text"}': "it is a text",
}


def test_a_rejected_record_is_printed_with_its_line_and_the_reason(tmp_path):
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text('{"v": [1, 0]}\n\n' + text(BAD))
    answer = dedup(path, "--field", "v", "--explain")
    assert (answer.exit_code, answer.stdout) == (0, '{"v": [1, 0]}\n')
    found = reasons(answer)
    assert [one["line"] for one in found] == [*range(3, len(BAD) + 3)]
    assert [one["record"] for one in found] == [*range(2, len(BAD) + 2)]
    assert f"warning: rejected: {len(BAD)}, most often because" in answer.stderr
    for one, (line, why) in zip(found, BAD.items(), strict=True):
        assert one["bad"]
        assert one["raw"] == line[:500]
        assert why in one["reason"]
    other.write_text("{}\n")
    [last] = reasons(dedup(path, other, "--field", "v", "--explain"))[len(BAD) :]
    assert (last["file"], last["line"], last["record"]) == (str(other), 1, len(BAD) + 2)


@given(st.binary(max_size=300), st.sampled_from(["text", "jsonl", "csv"]))
def test_no_bytes_stop_it(content, form):
    content = b"." + content  # not the magic bytes of a compressed file
    head, field = {
        "text": (b"", ()),
        "jsonl": (b"{", ("--field", "t")),
        "csv": (b"t\n", ("--field", "t")),
    }[form]
    answer = dedup("-", "--format", form, *field, content=head + content)
    rejected = answer.exit_code == 1 and "records can be compared" in answer.stderr
    assert answer.exit_code == 0 or (rejected and answer.stdout == "")
    if form == "text":
        assert set(answer.stdout_bytes.split(b"\n")) <= {*content.split(b"\n"), b""}


REFUSED = {
    "a field that no record has": ((), "{'id': 1}\n", "not JSON"),
    "an array": ((), json.dumps(ROWS), "jq -c '.[]'"),
    "records without a text": ((), jsonl([{"id": 1}, {"id": 2}]), "--field"),
    "a field of numbers": (("--field", "id"), jsonl(ROWS), "the field 'id' is int"),
    "another field": (("--field", "txet"), jsonl(ROWS), "it has 'id', 'text'"),
    "no column": (("--format", "csv", "--field", "x"), "a,b\n", "no column 'x'"),
    "a field of lines": (("--format", "text", "--field", "x"), "a\n", "no field"),
    "columns of one name": (("--format", "csv", "--field", "t"), "t,t\n1,2\n", "two columns"),
}


@pytest.mark.parametrize(("options", "content", "why"), REFUSED.values(), ids=REFUSED)
def test_input_that_cannot_be_compared_changes_no_output(tmp_path, out, options, content, why):
    path = tmp_path / "rows.json"
    path.write_text(content)
    answer = dedup(path, *options, "-o", out, "--state", tmp_path / "state")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert why in answer.stderr
    assert out.read_text() == "what was there"
    assert not (tmp_path / "state").exists()


def test_utf16_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\n", encoding="utf-16")
    answer = dedup(path)
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "iconv" in answer.stderr


def test_files_of_two_formats_or_other_columns_are_refused(rows, tmp_path, out):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, columns in zip(paths, ("id,text", "text,id"), strict=True):
        path.write_text(f"{columns}\n1,2\n")
    for files, why in (((rows, paths[0]), "a.csv is csv"), (paths, "'text,id'")):
        answer = dedup(*files, "--field", "text", "-o", out)
        assert answer.exit_code == 1
        assert why in answer.stderr
        assert out.read_text() == "what was there"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--similarity", 2), "range"),
        (("--similarity", "nan"), "nan"),
        (("-o", "{rows}"), "is being read"),
        (("-o", "no/such/folder"), "no folder"),
        (("--state", "s", "-o", "s"), "its lock"),
        (("--state", "s", "-o", "s.lock"), "its lock"),
        (("missing",), "no file"),
    ],
)
def test_options_that_cannot_work_are_refused(rows, options, why):
    answer = dedup(rows, *(str(word).replace("{rows}", str(rows)) for word in options))
    assert answer.exit_code == 2
    assert why in answer.stderr


def test_an_empty_file_gives_an_empty_output(tmp_path, out):
    path = tmp_path / "rows.jsonl"
    path.write_text("")
    assert dedup(path, "-o", out).exit_code == 0
    assert out.read_bytes() == b""


def test_a_state_knows_the_records_of_earlier_runs(rows, tmp_path):
    options = ("--similarity", 0.7, "--state", tmp_path / "state")
    assert dedup(rows, *options, "-o", tmp_path / "first").exit_code == 0
    with rows.open("a") as file:
        file.write(jsonl([{"text": "something new"}]))
    answer = dedup(rows, *options, "-o", tmp_path / "second")
    assert "kept: 1, duplicates: 5" in answer.stderr
    assert (tmp_path / "first").read_text() == jsonl(KEPT)
    assert (tmp_path / "second").read_text() == jsonl([{"text": "something new"}])


def test_the_output_of_an_earlier_run_is_not_overwritten(rows, tmp_path):
    options = ("--state", tmp_path / "state", "-o", tmp_path / "out")
    dedup(rows, *options)
    before = (tmp_path / "out").read_text()
    answer = dedup(rows, *options)
    assert (answer.exit_code, (tmp_path / "out").read_text()) == (2, before)
    assert "new file" in answer.stderr


def test_a_budget_bounds_what_is_held(tmp_path):
    path, state = tmp_path / "lines.txt", tmp_path / "state"
    path.write_text(text(f"line {n} of many {n * n}" for n in range(50)))
    dedup(path, "--budget", 7, "--similarity", 0.99, "--state", state)
    assert len(Deduplicator.load(state)) == 7


@pytest.mark.parametrize("change", [("--similarity", 0.5), ("--budget", 3)])
def test_a_state_of_another_setting_is_refused(rows, tmp_path, change):
    state = tmp_path / "state"
    dedup(rows, "--state", state)
    before = state.read_bytes()
    answer = dedup(rows, "--state", state, *change)
    assert (answer.exit_code, state.read_bytes()) == (1, before)
    assert "was made with" in answer.stderr


@pytest.mark.parametrize("content", [jsonl([{"text": "a", "title": "b"}]), "text,title\na,b\n"])
def test_a_state_of_another_field_is_refused(tmp_path, out, content):
    path, state = tmp_path / ("rows.jsonl" if content.startswith("{") else "rows.csv"), out
    path.write_text(content)
    state.unlink()
    assert dedup(path, "--field", "title", "--state", state).exit_code == 0
    before = state.read_bytes()
    for options in (("--field", "text"), (), ("--format", "text")):
        answer = dedup(path, *options, "--state", state, "-o", tmp_path / "new")
        assert (answer.exit_code, state.read_bytes()) == (1, before)
        assert "--field title" in answer.stderr
        assert not (tmp_path / "new").exists()
    assert dedup(path, "--field", "title", "--state", state).exit_code == 0


def test_a_state_knows_the_field_that_was_chosen_on_a_pipe(tmp_path):
    options = ("--state", tmp_path / "state")
    assert dedup("-", *options, content=jsonl([{"body": "a"}])).exit_code == 0
    answer = dedup("-", *options, content=jsonl([{"text": "a"}]))
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "--format jsonl --field body" in answer.stderr


FOREIGN = {
    "another rule for bad records": Deduplicator(),
    "a field": Deduplicator(field="text", on_bad="skip"),
    "n-grams of another size": Deduplicator(encode=NGrams(n=3), on_bad="skip"),
    "an encoder of the user": Deduplicator(
        encode=lambda texts: [[1.0]] * len(texts), on_bad="skip"
    ),
}


@pytest.mark.parametrize("seen", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("line", ["one", ""])
def test_a_state_of_a_deduplicator_that_compares_otherwise_is_refused(tmp_path, seen, line):
    seen.save(tmp_path / "state")
    before = (tmp_path / "state").read_bytes()
    answer = dedup("-", "--state", tmp_path / "state", content=f"{line}\n")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr.startswith("Error: ")
    assert "name another state" in answer.stderr
    assert (tmp_path / "state").read_bytes() == before


def test_a_file_that_is_no_state_is_refused(rows, tmp_path):
    (tmp_path / "state").write_text("no snapshot")
    assert "not a complete snapshot" in dedup(rows, "--state", tmp_path / "state").stderr


# SIGKILL after some batches: nobody handles it, so nothing ends in order.
KILLED = """
import os, signal
from distinctkv.dedup import formats, job
formats.CHUNK, decide, left = 1 << 12, job.Job._decide, [{batches}]
def doomed(self, batch):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return decide(self, batch)
job.Job._decide = doomed
"""


def test_a_killed_run_leaves_the_state_and_the_output_as_they_were(tmp_path, out):
    path, state = tmp_path / "app.log", tmp_path / "state"
    path.write_text(text(f"{n * n} apples and {n * 7919} pears in {n}" for n in range(3000)))
    process = start("dedup", path, "--state", state, "-o", out, before=KILLED.format(batches=20))
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert out.read_text() == "what was there"
    assert not state.exists()
    assert dedup(path, "--state", state, "-o", out).exit_code == 0
    assert out.read_text() == dedup(path).stdout


def test_ctrl_c_keeps_what_was_read(tmp_path):
    fifo, state = tmp_path / "fifo", tmp_path / "state"
    os.mkfifo(fifo)
    process = start("dedup", fifo, "--state", state)
    with fifo.open("w") as pipe:
        pipe.write("one door\nanother gate\nhalf a li")
        pipe.flush()
        printed = process.stdout.readline() + process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, b"one door\nanother gate\n")
    assert Deduplicator.load(state).kept == ["one door", "another gate"]


def stop_early(tmp_path, *options):
    """Send SIGINT to a run that has read one line; the run reads a named pipe."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("dedup", fifo, "--explain", *options)
    with fifo.open("w") as pipe:
        pipe.write("one door\none door\n")
        pipe.flush()
        process.stderr.readline()  # the second record is a duplicate
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    return told.decode()


def test_a_stopped_run_without_a_state_keeps_the_old_output(tmp_path, out):
    told = stop_early(tmp_path, "-o", out)
    assert out.read_text() == "what was there"
    assert f"{out} was not written" in told
    assert {file.name for file in tmp_path.iterdir()} == {"out", "fifo"}


def test_a_stopped_run_with_a_state_writes_what_it_read(tmp_path):
    told = stop_early(tmp_path, "-o", tmp_path / "new", "--state", tmp_path / "state")
    assert (tmp_path / "new").read_text() == "one door\n"
    assert Deduplicator.load(tmp_path / "state").kept == ["one door"]
    assert "not written" not in told


def test_a_damaged_input_without_a_state_keeps_the_old_output(tmp_path, out):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(PACKED["gzip"](jsonl(ROWS[:2]).encode())[:-8])
    answer = dedup(path, "-o", out)
    assert (answer.exit_code, out.read_text()) == (1, "what was there")
    assert f"{out} was not written" in answer.stderr
    new = tmp_path / "new"
    assert dedup(path, "-o", new, "--state", tmp_path / "state").exit_code == 1
    assert new.read_text() == jsonl(ROWS[:2])


def test_a_private_output_stays_private_and_has_a_temporary_name_of_its_own(rows, out):
    other = out.with_name(f".{out.name}.part")  # of somebody else
    other.write_text("in use")
    out.chmod(0o600)
    assert dedup(rows, "--similarity", 0.7, "-o", out).exit_code == 0
    assert (out.read_text(), out.stat().st_mode & 0o777) == (jsonl(KEPT), 0o600)
    assert other.read_text() == "in use"


def test_a_pipe_to_which_nobody_writes_can_be_left(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    ready = "from distinctkv.dedup import formats\nprint('ready', flush=True)"
    process = start("dedup", fifo, before=ready)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_pipe_can_be_written(rows, tmp_path):
    import threading

    fifo, got = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()), daemon=True)
    reader.start()
    answer = run("dedup", rows, "--similarity", "0.7", "-o", fifo)
    reader.join(60)
    assert (answer.returncode, got) == (0, [jsonl(KEPT)])


def test_a_full_disk_is_reported(rows, tmp_path):
    resource = pytest.importorskip("resource")
    assert b"cannot write" in run("dedup", rows, "-o", "/dev/full").stderr
    rows.write_text(jsonl({"text": f"{n:04} {chr(97 + n % 26) * 400}"} for n in range(500)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, limits[1]))
    try:
        options = ("--similarity", 1, "--state", tmp_path / "state")
        answer = dedup(rows, *options, "-o", tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.exit_code == 1
    assert f"cannot write {tmp_path / 'out'}" in answer.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "state").exists()


def test_two_runs_on_one_state_are_refused(rows, tmp_path):
    from distinctkv.cli.io import lock_state

    with lock_state(tmp_path / "state"):
        answer = dedup(rows, "--state", tmp_path / "state")
    assert "is in use by another run" in answer.stderr


def test_texts_that_are_not_utf8_are_told_apart(tmp_path):
    path, out = tmp_path / "rows.txt", tmp_path / "out.txt"
    rows = "привет из Москвы\nдругие в Рязани\nпривет из Москвы\n".encode("cp1251")
    path.write_bytes(rows)
    answer = dedup(path, "--explain", "--state", tmp_path / "state", "-o", out)
    assert out.read_bytes().splitlines() == rows.splitlines()[:2]
    [why] = reasons(answer)
    assert why["text"] == why["kept"] == "\ufffd" * 6 + " \ufffd\ufffd " + "\ufffd" * 6
    assert "kept: 0, duplicates: 3" in dedup(path, "--state", tmp_path / "state").stderr


PARQUET = {"id": range(6), "text": [*LINES, None], "v": [[1.0, n / 9] for n in range(6)]}


@pytest.fixture
def parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(PARQUET), tmp_path / "in")
    return parquet


@pytest.mark.parametrize("options", [(), ("--field", "text")])
def test_parquet_stays_parquet(tmp_path, parquet, options):
    out = tmp_path / "out.parquet"
    answer = dedup(tmp_path / "in", "--similarity", 0.7, "-o", out, "--explain", *options)
    assert parquet.read_table(out)["id"].to_pylist() == [0, 1, 4]
    assert parquet.read_schema(out) == parquet.read_schema(tmp_path / "in")
    assert [one["row"] for one in reasons(answer)] == [3, 4, 6]
    assert "rejected: 1, because it is empty" in answer.stderr


def test_vectors_of_parquet_are_compared(tmp_path, parquet):
    dedup(tmp_path / "in", "--field", "v", "--similarity", 0.9, "-o", tmp_path / "out")
    assert parquet.read_table(tmp_path / "out")["id"].to_pylist() == [0, 5]


def test_parquet_that_cannot_be_compared_is_refused(tmp_path, parquet):
    path, out, pipe = tmp_path / "in", tmp_path / "out", (tmp_path / "in").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(pipe[:100])
    for arguments, content, why in (
        ((path, "--field", "no", "-o", out), None, "'text', 'v'"),
        ((path, "--field", "id", "-o", out), None, "is int64"),
        ((path, "--field", "text"), None, "needed for Parquet"),
        ((path, "--field", "text", "-o", tmp_path), None, "directory"),
        (("-", "--field", "text", "-o", out), pipe, "needs a file"),
        ((tmp_path / "cut.parquet", "--field", "text", "-o", out), None, "cannot read Parquet"),
    ):
        answer = dedup(*arguments, content=content)
        assert answer.exit_code in (1, 2)
        assert why in answer.stderr
        assert not out.exists()
