"""``distinctkv dedup`` on what it cannot compare: it says so, and writes nothing."""

import json
import os
import signal

import numpy as np
import pytest

from tests.cli.logs import run, start
from tests.cli.test_dedup import ROWS, dedup, jsonl, reasons, text

OBJECTS = [{"id": n, "text": f"{n} of them"} for n in range(3)]


@pytest.fixture
def out(tmp_path):
    path = tmp_path / "out"
    path.write_text("what was there")
    return path


def refused(answer, out, *said):
    assert answer.exit_code == 1
    assert out.read_text() == "what was there"
    assert answer.stdout == ""
    for part in said:
        assert part in answer.stderr
    return True


def test_a_field_that_no_record_has_is_refused(tmp_path, out):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl([{"id": 1}, {"text": "x"}, {"more": 2}]))
    said = ("no record has the field 'txet'", "'id', 'text', 'more'")
    assert refused(dedup(path, "--field", "txet", "-o", out), out, *said)
    answer = dedup("-", "--field", "txet", content=path.read_text())
    assert refused(answer, out, *said)


def test_a_field_that_is_never_text_or_vector_is_refused(tmp_path, out):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(OBJECTS))
    answer = dedup(path, "--field", "id", "-o", out)
    assert refused(answer, out, "none of the 3 records", "the field 'id'", "is int", "line 1")


def test_a_field_that_some_records_have_is_enough(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl([{"id": 1}, {"id": 2}, {"text": "x"}]))
    answer = dedup(path, "--field", "text")
    assert (answer.exit_code, answer.stdout) == (0, jsonl([{"text": "x"}]))


def test_nothing_to_read_is_no_mistake(tmp_path, out):
    path = tmp_path / "rows.jsonl"
    path.write_text("")
    assert dedup(path, "--format", "jsonl", "--field", "text", "-o", out).exit_code == 0
    assert out.read_bytes() == b""


def test_a_record_that_is_half_written_is_no_mistake(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "ha')
    assert dedup(path, "--field", "text", "--state", tmp_path / "state").exit_code == 0


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("options", [(), ("--format", "jsonl")])
@pytest.mark.parametrize("piped", [False, True])
def test_an_array_is_refused(tmp_path, out, indent, options, piped):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(OBJECTS, indent=indent))
    given = ("-",) if piped else (path,)
    content = path.read_text() if piped else None
    answer = dedup(*given, "--field", "text", "-o", out, *options, content=content)
    assert refused(answer, out, "one JSON object per line")


def test_an_array_is_refused_without_a_field_too(tmp_path, out):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(OBJECTS))
    assert refused(dedup(path, "-o", out), out, "one JSON object per line", "--format text")
    assert dedup(path, "-o", out, "--format", "text").exit_code == 0


def test_an_array_of_numpy_is_refused(tmp_path, out):
    np.save(tmp_path / "rows.npy", np.eye(3))
    assert refused(dedup(tmp_path / "rows.npy", "-o", out), out, "an array of NumPy", "add_many")


def test_objects_over_several_lines_are_refused(tmp_path, out):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(OBJECTS[0], indent=2))
    assert refused(dedup(path, "--field", "text", "-o", out), out, "one JSON object per line")


@pytest.fixture
def mixed(tmp_path):
    (tmp_path / "x.jsonl").write_text(jsonl(ROWS))
    (tmp_path / "c.csv").write_text("id,text\n1,the end\n2,a start\n")
    return tmp_path / "x.jsonl", tmp_path / "c.csv"


def test_forms_do_not_mix(mixed, out):
    said = ("x.jsonl is jsonl", "c.csv is csv", "apart")
    assert refused(dedup(*mixed, "--field", "text", "-o", out), out, *said)
    assert refused(dedup(*mixed[::-1], "--field", "text", "-o", out), out)


def test_another_form_than_that_of_the_state_is_refused(mixed, out, tmp_path):
    options = ("--field", "text", "--state", tmp_path / "state")
    assert dedup(mixed[0], *options).exit_code == 0
    assert refused(dedup(mixed[1], *options), out, "was begun with jsonl", "c.csv is csv")


def test_other_columns_are_refused_before_anything_is_written(mixed, out, tmp_path):
    other = tmp_path / "d.csv"
    other.write_text("text,id\nx,1\n")
    answer = dedup(mixed[1], other, "--field", "text", "-o", out)
    assert refused(answer, out, "d.csv has other columns", "'text,id'", "'id,text'")
    assert refused(dedup(mixed[1], other, "--field", "text"), out)
    other.write_text("a,b\nx,1\n")
    assert refused(dedup(mixed[1], other, "--field", "text"), out, "d.csv", "no column 'text'")


def test_a_column_of_parquet_that_cannot_be_compared_is_refused(tmp_path, out):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"id": [1, 2], "text": ["a", "b"], "v": [[1.0], [2.0]], "w": [["a"], ["b"]]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "in")
    for field, kind in (("id", "int64"), ("w", "list<")):
        answer = dedup(tmp_path / "in", "--field", field, "-o", out)
        assert refused(answer, out, repr(field), kind, "'text', 'v'")
    empty = pyarrow.table({"text": pyarrow.array([None, None], pyarrow.string())})
    parquet.write_table(empty, tmp_path / "empty")
    answer = dedup(tmp_path / "empty", "--field", "text", "-o", out)
    assert refused(answer, out, "none of the 2 records")
    answer = dedup(tmp_path / "in", tmp_path / "empty", "--field", "text", "-o", out)
    assert refused(answer, out, "other columns")


def test_a_similarity_that_is_no_number_is_refused(mixed):
    answer = dedup(mixed[0], "--field", "text", "--similarity", "nan")
    assert answer.exit_code == 2
    assert "nan" in answer.stderr


def test_a_budget_that_is_no_number_is_refused(mixed):
    answer = dedup(mixed[0], "--field", "text", "--budget", "9" * 400)
    assert answer.exit_code == 2
    assert "Invalid value for --budget" in answer.stderr


def test_a_pipe_can_be_written(mixed, tmp_path):
    import threading

    fifo, got = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_text()), daemon=True)
    reader.start()
    answer = run("dedup", mixed[0], "--field", "text", "-o", fifo)
    reader.join(60)
    assert (answer.returncode, got) == (0, [jsonl([ROWS[0], ROWS[1], ROWS[2], ROWS[4]])])
    options = ("--field", "text", "-o", fifo, "--state", tmp_path / "state")
    assert "a pipe or device cannot be cut back" in dedup(mixed[0], *options).stderr


BAD = {
    "{": "no JSON",
    "[1, 2]": "a list, and no object",
    '{"other": 1}': "the field 'v' is missing; it has 'other'",
    '{"v": null}': "the field 'v' is empty",
    '{"v": 7}': "the field 'v' is int",
    '{"v": ["x"]}': "a vector of numbers",
    '{"v": [1.0]}': "it has 1 numbers, those before have 2",
    '{"v": [0, 0]}': "all zeros",
    '{"v": [1, NaN]}': "nan",
    '{"v": "text"}': "it is a text",
}


def test_what_is_bad_is_told_with_its_line_and_the_reason(tmp_path):
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text('{"v": [1, 0]}\n\n' + text(BAD))
    found = reasons(dedup(path, "--field", "v", "--explain"))
    assert [one["line"] for one in found] == [*range(3, len(BAD) + 3)]
    assert [one["record"] for one in found] == [*range(2, len(BAD) + 2)]
    for one, said in zip(found, BAD.values(), strict=True):
        assert one["bad"]
        assert said in one["reason"]
    assert "file" not in found[0]
    other.write_text("{}\n")
    [last] = reasons(dedup(path, other, "--field", "v", "--explain"))[len(BAD) :]
    assert (last["file"], last["line"], last["record"]) == (str(other), 1, len(BAD) + 2)


def test_lines_are_counted_over_cells_rows_and_states(tmp_path, monkeypatch):
    from distinctkv.dedup import cutting

    monkeypatch.setattr(cutting, "CELL", 16)
    path, options = tmp_path / "c.csv", ("--field", "text", "--explain")
    path.write_text('id,text\n1,"two\nlines"\n2,other things\n\n3\n4,"two\nlines"\n')
    state = ("--state", tmp_path / "state")
    assert [one["line"] for one in reasons(dedup(path, *options, *state))] == [6, 7]
    with path.open("a") as file:
        file.write("5,something new\n6\n7")
    assert [one["line"] for one in reasons(dedup(path, *options, *state))] == [10, 11]


def test_a_pipe_to_which_nobody_writes_is_named_and_can_be_left(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("dedup", fifo)
    assert process.stderr.readline() == f"waiting for something to write to {fifo}\n".encode()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"records: 0" in said


def test_a_pipe_is_read_once_somebody_writes(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start("dedup", fifo)
    process.stderr.readline()
    fifo.write_text("one door\nanother gate\none door\n")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"one door\nanother gate\n")


def test_parquet_through_a_pipe_is_refused_by_its_name(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a", "b"]}), tmp_path / "x")
    content, out = (tmp_path / "x").read_bytes(), tmp_path / "out"
    for options in ((), ("--field", "text"), ("--field", "text", "--format", "parquet")):
        answer = dedup("-", *options, "-o", out, content=content)
        assert answer.exit_code in (1, 2)
        assert "Parquet" in answer.stderr
        assert "needs a file" in answer.stderr
        assert not out.exists()


def test_json_lines_by_their_name_may_begin_with_a_comment(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("# made by hand\n" + jsonl(ROWS[:2]))
    answer = dedup(path, "--field", "text")
    assert answer.stdout == jsonl(ROWS[:2])
    assert "left out: 1, because it is no JSON" in answer.stderr
    path = path.rename(tmp_path / "rows.txt")
    assert "--format" in dedup(path, "--field", "text").stderr


def test_the_commonest_reason_is_told_and_rightly(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"v": [1, 0]}, *({"v": [1, n, 2]} for n in range(5)), {"v": None}]
    path.write_text(jsonl(rows))
    answer = dedup(path, "--field", "v")
    assert "warning: left out: 6, most often because it has 3 numbers" in answer.stderr
    assert "those before have 2" in answer.stderr


def test_an_explanation_has_the_record_that_is_in_no_output(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl([{"text": "a"}, {"id": 7, "text": None}]))
    [one] = reasons(dedup(path, "--field", "text", "--explain"))
    assert (one["line"], json.loads(one["raw"])) == (2, {"id": 7, "text": None})


def test_a_pipe_that_gave_nothing_does_not_bind_the_state(tmp_path):
    options = ("--field", "text", "--state", tmp_path / "state")
    assert dedup("-", *options, content="").exit_code == 0
    assert dedup("-", *options, content=jsonl(ROWS[:2])).stdout == jsonl(ROWS[:2])
    assert dedup("-", *options, content=jsonl(ROWS[:1])).stdout == ""
