"""``distinctkv dedup`` on files and pipes, whatever is in them."""

import csv
import io
import json
import random
import signal

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.cli import main
from distinctkv.dedup import Deduplicator
from distinctkv.logs import places
from tests.cli.logs import log, run, start
from tests.logs.packing import PACKED

LINES = ["the door is open", "no such file", "the door is open!", "no such file", "the end"]
KEPT = ["the door is open", "no such file", "the end"]
ROWS = [{"id": n, "text": line, "more": ["é", None]} for n, line in enumerate(LINES)]


def dedup(*arguments, content=None):
    """The command in this process."""
    return CliRunner().invoke(main, ["dedup", *map(str, arguments)], input=content)


def text(lines):
    return "".join(f"{line}\n" for line in lines)


def jsonl(rows):
    return text(json.dumps(row) for row in rows)


def reasons(answer):
    return [json.loads(line) for line in answer.stderr.splitlines() if line.startswith("{")]


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(ROWS))
    return path


def test_kept_records_are_printed_as_they_were(rows):
    answer = dedup(rows, "--field", "text", "--similarity", 0.7)
    assert answer.stdout == jsonl([ROWS[0], ROWS[1], ROWS[4]])
    assert "records: 5 in" in answer.stderr
    assert "kept: 3, dropped: 2" in answer.stderr
    assert answer.exit_code == 0


def test_the_reason_is_told(rows):
    [first, second] = reasons(dedup(rows, "--field", "text", "--similarity", 0.7, "--explain"))
    assert (first["record"], first["of"], first["text"], first["kept"]) == (
        3,
        1,
        LINES[2],
        LINES[0],
    )
    assert 0.7 <= first["similarity"] < 1
    assert (second["record"], second["of"], second["similarity"]) == (4, 2, 1.0)


def test_lines_of_plain_text_are_records(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"one\r\ntwo\none\r\n\xff\xfe\n\n\nlast")
    assert dedup(path).stdout_bytes == b"one\r\ntwo\n\xff\xfe\n\nlast\n"


def table(rows, separator=","):
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, lineterminator="\r\n")
    writer.writerows([["id", "text"], *([row["id"], row["text"]] for row in rows)])
    return out.getvalue()


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_rows_of_csv_are_records(tmp_path, separator):
    rows = [*ROWS, {"id": 7, "text": f'said "a\nb"{separator} then c'}, {"id": 8, "text": "é"}]
    path = tmp_path / "rows.csv"
    path.write_bytes(table(rows, separator).encode())
    kept = [rows[0], rows[1], *rows[4:]]
    answer = dedup(path, "--field", "text", "--similarity", 0.7)
    assert answer.stdout_bytes.decode() == table(kept, separator)


@pytest.mark.parametrize("kind", PACKED)
def test_archives_are_read(tmp_path, kind):
    path = tmp_path / "rows"
    path.write_bytes(PACKED[kind](jsonl(ROWS).encode()))
    answer = dedup(path, "--field", "text", "--similarity", 0.7)
    assert answer.stdout == jsonl([ROWS[0], ROWS[1], ROWS[4]])


@pytest.mark.parametrize("given", [jsonl(ROWS), table(ROWS)])
def test_standard_input_is_known_by_its_first_bytes(given):
    answer = dedup("-", "--field", "text", content=given)
    assert "kept: 4, dropped: 1" in answer.stderr


def test_parquet_stays_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"id": range(6), "text": [*LINES, None], "v": [[1.0, n / 9] for n in range(6)]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "in")
    out = tmp_path / "out.parquet"
    answer = dedup(tmp_path / "in", "--field", "text", "--similarity", 0.7, "-o", out)
    assert parquet.read_table(out)["id"].to_pylist() == [0, 1, 4]
    assert parquet.read_schema(out) == parquet.read_schema(tmp_path / "in")
    assert "left out: 1" in answer.stderr
    dedup(tmp_path / "in", "--field", "v", "--similarity", 0.9, "-o", out)
    assert parquet.read_table(out)["id"].to_pylist() == [0, 5]
    for wrong, said in (
        (("--field", "no", "-o", out), "has no column 'no'"),
        (("--field", "v"), "needed for Parquet"),
        (("--field", "v", "-o", out, "--state", tmp_path / "s"), "is no folder, which Parquet"),
        (("--field", "v", "-o", tmp_path), "is a folder; name a file in it"),
    ):
        assert said in dedup(tmp_path / "in", *wrong).stderr
    assert not list(tmp_path.glob(".*"))  # no half-written file is left


def test_vectors_in_a_field_are_compared_as_they_are(tmp_path):
    vectors = [[1.0, 0.0], [0.0, 2.0], [3.0, 0.1], [0, 0], [1], ["x", "y"], [float("nan"), 1.0]]
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl({"v": vector} for vector in vectors))
    answer = dedup(path, "--field", "v", "--explain")
    assert answer.stdout == jsonl([{"v": [1.0, 0.0]}, {"v": [0.0, 2.0]}])
    assert "left out: 4" in answer.stderr
    assert [one.get("of") for one in reasons(answer)] == [1, None, None, None, None]


BAD = ["{", "[1, 2]", "null", '{"other": 1}', '{"text": null}', '{"text": 7}', "\xff", "[" * 9999]


def test_bad_lines_are_counted_and_never_fatal(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(jsonl(ROWS[:1]) + text(BAD) + "\n" + jsonl(ROWS[1:2]), encoding="latin-1")
    answer = dedup(path, "--field", "text")
    assert answer.stdout == jsonl(ROWS[:2])
    assert f"left out: {len(BAD)}" in answer.stderr
    assert answer.exit_code == 0


@given(st.binary(max_size=300), st.sampled_from(["text", "jsonl", "csv"]))
def test_no_bytes_stop_it(content, form):
    content = b"." + content  # an archive's mark is no text
    head, field = {
        "text": (b"", ()),
        "jsonl": (b"{", ("--field", "t")),
        "csv": (b"t\n", ("--field", "t")),
    }[form]
    answer = dedup("-", "--format", form, *field, content=head + content)
    assert answer.exit_code == 0 or (
        answer.exit_code == 1
        and answer.stdout == ""
        and ("records can be compared" in answer.stderr or "no line is" in answer.stderr)
        and "Traceback" not in answer.stderr
    )
    if form == "text":
        assert set(answer.stdout_bytes.split(b"\n")) <= {*content.split(b"\n"), b""}


def test_a_line_without_end_is_left_out(tmp_path, monkeypatch):
    from distinctkv.dedup import cutting

    monkeypatch.setattr(cutting, "LONGEST", 1000)
    monkeypatch.setattr(cutting, "CELL", 256)
    path = tmp_path / "lines.txt"
    path.write_text("one\n" + "x" * 10_000 + "\ntwo\n" + "y" * 10_000)
    answer = dedup(path)
    assert answer.stdout == "one\ntwo\n"
    assert "left out: 2" in answer.stderr


def test_a_budget_bounds_what_is_held(tmp_path):
    path, state = tmp_path / "lines.txt", tmp_path / "state"
    path.write_text(text(f"line {n} of many {n * n}" for n in range(50)))
    dedup(path, "--budget", 7, "--similarity", 0.99, "--state", state)
    assert len(Deduplicator.load(state)) == 7


def test_of_many_files_none_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "REMEMBERED", 2)
    paths = [tmp_path / f"{number}.txt" for number in range(7)]
    for number, path in enumerate(paths):
        path.write_text(f"{number}\n")
    state = tmp_path / "state"
    dedup(*paths, "--state", state)
    assert "records: 0 in" in dedup(*paths, "--state", state).stderr


def test_a_state_is_gone_on_from(rows, tmp_path):
    options = ("--field", "text", "--similarity", 0.7, "--state", tmp_path / "state")
    out = ("-o", tmp_path / "out")
    dedup(rows, *options, *out)
    with rows.open("a") as file:
        file.write(jsonl([ROWS[0], {"text": "something new"}]))
    answer = dedup(rows, *options, *out)
    expected = jsonl([ROWS[0], ROWS[1], ROWS[4], {"text": "something new"}])
    assert (tmp_path / "out").read_text() == expected
    assert "records: 2 in" in answer.stderr
    assert ", 7 with those before" in answer.stderr
    assert dedup(rows, *options, *out).exit_code == 0
    assert (tmp_path / "out").read_text() == expected


def test_a_half_written_record_is_read_again(rows, tmp_path):
    options = ("--field", "text", "--state", tmp_path / "state", "-o", tmp_path / "out")
    whole = json.dumps({"text": "quite another thing"})
    with rows.open("a") as file:
        file.write(whole[:-5])
    assert "left out: 1" in dedup(rows, *options).stderr
    with rows.open("a") as file:
        file.write(whole[-5:] + "\n")
    dedup(rows, *options)
    assert (tmp_path / "out").read_text().endswith(whole + "\n")


def test_another_file_is_compared_with_what_came_before(rows, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text(jsonl([{"text": "no such file"}, {"text": "all is well"}]))
    options = ("--field", "text", "--state", tmp_path / "state")
    dedup(rows, *options)
    assert dedup(other, *options).stdout == jsonl([{"text": "all is well"}])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--similarity", 0.5), "was begun with a similarity of 0.9"),
        (("--budget", 3), "was begun with"),
        (("--field", "more"), "was begun with jsonl and the field 'text'"),
        (("-o", "missing"), "is missing, and so not what the state says was written"),
    ],
)
def test_another_setting_is_refused(rows, tmp_path, change, said, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dedup(rows, "--field", "text", "--state", "state", "-o", "out")
    options = {"--field": "text", "--state": "state", "-o": "out"} | dict([change])
    answer = dedup(rows, *(word for pair in options.items() for word in pair))
    assert answer.exit_code == 1
    assert said in answer.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--similarity", 2), "is not in the range"),
        ((), "--field"),
        (("--field", "text", "-o", "{rows}"), "is being read"),
        (("--field", "text", "-o", "no/such/folder"), "there is no folder"),
        (("--format", "text", "--field", "x"), "has no fields"),
        (("--format", "csv", "--field", "x"), "has no column 'x'"),
    ],
)
def test_what_cannot_work_is_refused(rows, options, said):
    answer = dedup(rows, *(str(word).replace("{rows}", str(rows)) for word in options))
    assert answer.exit_code in (1, 2)
    assert said in answer.stderr


def test_a_state_that_is_none_is_refused(rows, tmp_path):
    state = tmp_path / "state"
    state.write_text("no snapshot")
    assert "is not a whole snapshot" in dedup(rows, "--field", "text", "--state", state).stderr
    seen = Deduplicator(on_bad="skip")
    seen.note["distinctkv dedup"] = {"form": "jsonl", "field": "text", "places": 3}
    seen.save(state)
    assert "does not say how far" in dedup(rows, "--field", "text", "--state", state).stderr


OFTEN = """
from distinctkv.dedup import cutting, job
job.RECORDS, job.PER_KEPT, cutting.CELL = 200, 0, 1 << 12
"""
# Struck down a moment of its own time after some saves, as by SIGKILL: see test_kill.
DOOM = """
import signal
save, left = job.Job.save, [{saves}]
def doomed(self):
    save(self)
    left[0] -= 1
    if not left[0]:
        signal.setitimer(signal.ITIMER_PROF, {moment})
job.Job.save = doomed
"""


def test_a_killed_run_loses_nothing_and_doubles_nothing(tmp_path, seed):
    path, draw = tmp_path / "app.log", random.Random(seed)
    path.write_text(log(3000, seed, header=""))
    calm = run("dedup", path, "--similarity", "0.8", "-o", tmp_path / "calm", before=OFTEN)
    options = (
        "dedup",
        path,
        "--similarity",
        "0.8",
        "-o",
        tmp_path / "out",
        "--state",
        tmp_path / "s",
    )
    for _ in range(2):
        doom = DOOM.format(saves=draw.randint(1, 3), moment=draw.uniform(1e-4, 0.02))
        process = start(*options, before=OFTEN + doom)
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGPROF
    last = run(*options, before=OFTEN)
    assert calm.returncode == last.returncode == 0
    assert b"3,000 with those before" in last.stderr
    assert (tmp_path / "out").read_bytes() == (tmp_path / "calm").read_bytes()


def test_two_runs_on_one_state_are_refused(rows, tmp_path):
    from distinctkv.cli.io import lock_state

    with lock_state(tmp_path / "state"):
        answer = dedup(rows, "--field", "text", "--state", tmp_path / "state")
    assert "is in use by another run" in answer.stderr


def test_a_full_disk_is_told(rows):
    answer = run("dedup", rows, "--field", "text", "-o", "/dev/full")
    assert answer.returncode == 1
    assert b"cannot write" in answer.stderr


def test_texts_that_are_not_utf8_are_told_apart(tmp_path):
    path, out = tmp_path / "rows.txt", tmp_path / "out.txt"
    rows = "привет из Москвы\nдругие в Рязани\nпривет из Москвы\n".encode("cp1251")
    path.write_bytes(rows)
    answer = dedup(path, "--explain", "--state", tmp_path / "state", "-o", out)
    assert out.read_bytes().splitlines() == rows.splitlines()[:2]
    [why] = reasons(answer)
    assert why["text"] == why["kept"] == "\ufffd" * 6 + " \ufffd\ufffd " + "\ufffd" * 6
    told = CliRunner().invoke(main, ["info", "--json", str(tmp_path / "state")]).stdout
    assert json.loads(told)["most repeated"][0]["text"] == why["kept"]
    path.write_bytes(rows + rows)
    assert "kept: 0, dropped: 3" in dedup(path, "--state", tmp_path / "state", "-o", out).stderr


def test_cells_that_are_not_utf8_are_told_apart():
    rows = "id,text\n1,größer wär ein Bär\n2,gräßer wör ein Bör\n".encode("latin-1")
    answer = dedup("--field", "text", "--format", "csv", content=rows)
    assert answer.stdout_bytes == rows
