"""``distinctkv dedup`` on Parquet with a state: parts in a folder, none lost and none doubled."""

import os
import signal

import pytest
from click.testing import CliRunner

from distinctkv.cli import main
from distinctkv.dedup import parquet as parts
from tests.cli.logs import start
from tests.cli.test_dedup import reasons

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def dedup(*arguments):
    return CliRunner().invoke(main, ["dedup", *map(str, arguments)])


@pytest.fixture
def tables(tmp_path, monkeypatch, rng):
    """Three files of rows of which many repeat, read and cut in small pieces."""
    monkeypatch.setattr(parts, "ROWS", 7)
    monkeypatch.setattr(parts, "PART", 40)
    monkeypatch.setattr(parts, "PER_KEPT", 0)
    paths = []
    for number in range(3):
        texts = [f"thing {n} " * 5 for n in rng.integers(0, 60, 100)]
        made = pyarrow.table({"id": range(100 * number, 100 * number + 100), "text": texts})
        paths.append(tmp_path / f"{number}.parquet")
        parquet.write_table(made, paths[-1], row_group_size=33)
    return paths


def kept(folder):
    return [
        n for path in sorted(folder.glob("*")) for n in parquet.read_table(path)["id"].to_pylist()
    ]


def whole(tables, tmp_path):
    dedup(*tables, "--field", "text", "-o", tmp_path / "one")
    return parquet.read_table(tmp_path / "one")["id"].to_pylist()


def test_files_are_compared_with_those_of_earlier_runs(tables, tmp_path):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    for path in (tables[0], tables[1], tables[1], tables[2]):
        answer = dedup(path, *options)
        assert answer.exit_code == 0
    assert "100 in" in answer.stderr
    assert "300 with those before" in answer.stderr
    assert kept(tmp_path / "out") == whole(tables, tmp_path)


@pytest.mark.parametrize("batches", [1, 6, 9, 20, 44])
def test_a_run_that_is_killed_ends_as_one_that_is_not(tables, tmp_path, monkeypatch, batches):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    count, judge = [0], parts.Tables._judge

    def doomed(*given):
        count[0] += 1
        if count[0] == batches:
            raise KeyboardInterrupt
        return judge(*given)

    with monkeypatch.context() as patch:
        patch.setattr(parts.Tables, "_judge", doomed)
        assert dedup(*tables, *options).exit_code == 1
    assert dedup(*tables, *options).exit_code == 0
    assert kept(tmp_path / "out") == whole(tables, tmp_path)
    dedup(*tables, "--field", "text", "--state", tmp_path / "t", "-o", tmp_path / "calm")
    calm = sorted((tmp_path / "calm").iterdir())
    assert [path.name for path in calm] == [f"part-{n:05}.parquet" for n in range(len(calm))]
    assert sorted(os.listdir(tmp_path / "out")) == [path.name for path in calm]
    assert len(calm) > 1
    for path in calm:  # the same rows in each, though pages may be cut elsewhere
        assert parquet.read_table(tmp_path / "out" / path.name) == parquet.read_table(path)


def test_a_part_that_the_state_does_not_know_is_written_again(tables, tmp_path, monkeypatch):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    dedup(tables[0], *options)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("distinctkv.dedup.deduplicator.saving.save", full)
        answer = dedup(tables[1], *options)
    assert answer.exit_code == 1
    assert "No space left" in answer.stderr
    dedup(*tables, *options)
    assert kept(tmp_path / "out") == whole(tables, tmp_path)


def test_another_folder_than_that_of_the_state_is_refused(tables, tmp_path):
    state = ("--field", "text", "--state", tmp_path / "s")
    dedup(tables[0], *state, "-o", tmp_path / "out")
    answer = dedup(tables[1], *state, "-o", tmp_path / "other")
    assert "is not what the state says was written" in answer.stderr
    answer = dedup(tables[1], "--field", "text", "--state", tmp_path / "t", "-o", tmp_path / "out")
    assert "is not empty, and the state did not fill it" in answer.stderr
    assert not (tmp_path / "t").exists()
    answer = dedup(tables[1], "--field", "id", "--state", tmp_path / "s", "-o", tmp_path / "out")
    assert "was begun with parquet and the field 'text'" in answer.stderr


def test_a_folder_with_parts_of_another_job_loses_none(tables, tmp_path):
    for name, files in (("a", tables[:1]), ("b", tables)):
        options = ("--field", "text", "--state", tmp_path / name, "-o", tmp_path / f"{name}.out")
        dedup(*files, *options)
    there = sorted(os.listdir(tmp_path / "b.out"))
    options = ("--field", "text", "--state", tmp_path / "a", "-o", tmp_path / "b.out")
    answer = dedup(*tables, *options)
    assert answer.exit_code == 1
    assert "is not what the state says was written" in answer.stderr
    assert sorted(os.listdir(tmp_path / "b.out")) == there


def test_a_folder_with_anything_in_it_is_refused_to_a_new_state(tables, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    assert "is not empty" in dedup(tables[0], *options).stderr
    assert os.listdir(tmp_path / "out") == ["mine"]


KILLED = """
import os, signal
from distinctkv.dedup import parquet
parquet.ROWS, parquet.PART, parquet.PER_KEPT = 7, 40, 0
place, name, left = {place}, "{name}", [{times}]
inner = getattr(place, name)
def doomed(*given):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(*given)
setattr(place, name, doomed)
"""
MOMENTS = [
    ("parquet.Tables", "_judge", 2),  # within the first part
    ("parquet", "write_state", 1),  # before there is a state
    ("parquet", "write_state", 2),  # the first part is there, and the state knows of none
    ("parquet.Folder", "make", 1),  # there is a state, and no folder
    ("parquet.Part", "commit", 3),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_struck_down_is_gone_on_with(tables, tmp_path, moment):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    before = KILLED.format(**dict(zip(("place", "name", "times"), moment, strict=True)))
    process = start("dedup", *tables, *options, before=before)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert dedup(*tables, *options).exit_code == 0
    assert kept(tmp_path / "out") == whole(tables, tmp_path)
    assert all(name.startswith("part-") for name in os.listdir(tmp_path / "out"))


def test_parts_are_on_the_disk_before_the_state_that_vouches_for_them(
    tables, tmp_path, monkeypatch
):
    done, sync, write = [], os.fsync, parts.write_state
    monkeypatch.setattr(os, "fsync", lambda n: (done.append(_name(n)), sync(n))[1])
    monkeypatch.setattr(parts, "write_state", lambda *a: (done.append("state"), write(*a))[1])
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    dedup(tables[0], *options)
    first = [name for name in done if name != "s"]
    part = next(n for n, name in enumerate(first) if name.startswith(".part-00000"))
    assert first[part + 1 : part + 3] == ["out", "state"]


def _name(number):
    return os.path.basename(os.readlink(f"/proc/self/fd/{number}"))


def test_other_columns_than_those_of_the_state_are_refused(tables, tmp_path):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    dedup(tables[0], *options)
    parquet.write_table(pyarrow.table({"text": ["a"], "more": [1]}), tmp_path / "x")
    answer = dedup(tmp_path / "x", *options)
    assert answer.exit_code == 1
    assert "x has other columns than what came before" in answer.stderr
    assert "id: int64" in answer.stderr


def test_files_are_open_one_at_a_time(tables, tmp_path, monkeypatch):
    from distinctkv.dedup import columns

    files, opened = [], columns.opened

    def counted(path):
        assert all(file.closed for file in files)
        files.append(opened(path))
        return files[-1]

    monkeypatch.setattr(columns, "opened", counted)
    assert dedup(*tables, "--field", "text", "-o", tmp_path / "one").exit_code == 0
    assert len(files) == 6


def test_a_part_may_span_files_and_the_state_is_written_once_for_it(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART", 1000)
    saves, write = [], parts.write_state
    monkeypatch.setattr(parts, "write_state", lambda *a: (saves.append(a), write(*a)))
    dedup(*tables, "--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["part-00000.parquet"]
    assert len(saves) == 2  # that the folder is its own, and the end
    assert kept(tmp_path / "out") == whole(tables, tmp_path)


STOPPED = KILLED.replace("signal.SIGKILL", "signal.SIGINT")


def test_what_a_stopped_run_says_is_what_it_wrote(tables, tmp_path):
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    before = STOPPED.format(place="parquet.Tables", name="_judge", times=9)
    process = start("dedup", *tables, *options, before=before)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    there = len(kept(tmp_path / "out"))
    assert there > 0
    assert f"kept: {there}, " in said.decode()
    assert dedup(*tables, *options).exit_code == 0
    assert kept(tmp_path / "out") == whole(tables, tmp_path)


def test_a_run_without_state_that_is_stopped_says_that_nothing_was_written(tables, tmp_path):
    before = STOPPED.format(place="parquet.Tables", name="_judge", times=9)
    out = tmp_path / "out.parquet"
    process = start("dedup", *tables, "--field", "text", "-o", out, before=before)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "records: 0 in" in said.decode()
    assert "out.parquet was not written" in said.decode()
    assert not out.exists()


def test_two_columns_of_one_name_are_refused(tmp_path):
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.table(columns, names=["text", "text"]), tmp_path / "x")
    answer = dedup(tmp_path / "x", "--field", "text", "-o", tmp_path / "out")
    assert answer.exit_code == 1
    assert "two columns named 'text'" in answer.stderr


def test_a_name_that_parquet_cannot_open_is_refused(tables, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff.parquet")
    os.link(tables[0], odd)
    for path, output in ((odd, tmp_path / "out"), (tables[0], odd.with_suffix(".out"))):
        answer = dedup(path, "--field", "text", "-o", output)
        assert answer.exit_code == 1
        assert "must be UTF-8" in answer.stderr


def test_a_row_that_is_left_out_is_told_by_its_number(tmp_path):
    parquet.write_table(pyarrow.table({"text": ["a", None, "a"]}), tmp_path / "x")
    answer = dedup(tmp_path / "x", "--field", "text", "-o", tmp_path / "out", "--explain")
    assert [one["row"] for one in reasons(answer)] == [2, 3]
    assert "left out: 1, because it is empty" in answer.stderr


TEXTS = ["a b c d", "e f g h", "a b c d"]
COLUMNS = {
    "views": pyarrow.array(TEXTS, pyarrow.string_view()),
    "bytes": pyarrow.array([text.encode() for text in TEXTS], pyarrow.binary_view()),
    "words": pyarrow.array(TEXTS).dictionary_encode(),
    "lists": pyarrow.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]),
}


def lists(kind):
    return pyarrow.large_list(pyarrow.list_(kind, 1))


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_texts_and_vectors_of_every_type_are_compared(tmp_path, column):
    view = pyarrow.string_view()
    beside = pyarrow.array(TEXTS, view)
    within = pyarrow.array([{"a": [[text]]} for text in TEXTS], pyarrow.struct({"a": lists(view)}))
    made = pyarrow.table({"id": range(3), "text": column, "beside": beside, "within": within})
    parquet.write_table(made, tmp_path / "x")
    answer = dedup(tmp_path / "x", "--field", "text", "-o", tmp_path / "out")
    assert answer.exit_code == 0, answer.stderr
    assert parquet.read_table(tmp_path / "out").to_pylist() == made.slice(0, 2).to_pylist()


def test_a_folder_that_is_empty_is_taken(tables, tmp_path):
    (tmp_path / "out").mkdir()
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    assert dedup(*tables, *options).exit_code == 0


def test_what_cannot_be_compared_leaves_nothing(tables, tmp_path):
    empty = pyarrow.table({"text": pyarrow.array([None, None], pyarrow.string())})
    parquet.write_table(empty, tmp_path / "x")
    options = ("--field", "text", "--state", tmp_path / "s", "-o", tmp_path / "out")
    assert "none of the 2 records" in dedup(tmp_path / "x", *options).stderr
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "out").exists()


def test_a_full_disk_names_the_output_too(tables, tmp_path):
    resource = pytest.importorskip("resource")
    limits, out = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "out"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, limits[1]))
    try:
        answer = dedup(*tables, "--field", "text", "-o", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.exit_code == 1
    assert f" to {out}: " in answer.stderr
    assert not out.exists()
