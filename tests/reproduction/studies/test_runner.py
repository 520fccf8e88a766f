import json
import shutil
from pathlib import Path

import pytest

from reproduction.studies import shelf
from reproduction.studies.study import Scale, silent
from tests.reproduction.studies.tails import streams

TINY = Scale("tiny", 0.01)


@pytest.fixture
def seeds(seed):
    return (seed, seed + 1)


@pytest.fixture
def folder(tmp_path, seeds):
    shelf.measure("recall", seeds, TINY, tmp_path / "new", silent)
    return tmp_path / "new"


def test_a_finished_study_is_found_again(folder, seeds):
    found = shelf.find("recall", seeds, TINY, folder)
    assert found is not None
    assert found.to_json() == (folder / "recall.json").read_text()


def test_the_file_is_all_that_is_left(folder):
    assert [path.name for path in folder.iterdir()] == ["recall.json"]


def test_nothing_is_found_in_an_empty_folder(tmp_path, seeds):
    assert shelf.find("recall", seeds, TINY, tmp_path) is None


def test_other_seeds_are_another_result(folder, seed):
    assert shelf.find("recall", (seed, seed + 2), TINY, folder) is None


def test_a_study_that_uses_few_of_its_seeds_is_found_by_all_of_them(folder, seeds, monkeypatch):
    study = shelf.load("recall")
    plain = study.settings(TINY)
    monkeypatch.setattr(study, "settings", lambda scale: {**plain, "seeds_used": 2})
    kept = folder / "recall.json"
    told = json.loads(kept.read_text())
    told["settings"]["seeds_used"] = 2
    kept.write_text(json.dumps(told))
    assert shelf.find("recall", (*seeds, 70, 71), TINY, folder) is not None
    assert shelf.find("recall", (70, *seeds), TINY, folder) is None


def test_another_scale_is_another_result(folder, seeds):
    assert shelf.find("recall", seeds, Scale("tiny", 0.02), folder) is None


def test_other_code_is_another_result(folder, seeds):
    path = folder / "recall.json"
    raw = json.loads(path.read_text())
    raw["versions"]["code"] = "another"
    path.write_text(json.dumps(raw))
    assert shelf.find("recall", seeds, TINY, folder) is None


def test_a_damaged_file_is_no_result(folder, seeds):
    path = folder / "recall.json"
    path.write_text(path.read_text()[:-40])
    assert shelf.find("recall", seeds, TINY, folder) is None


def test_a_run_that_dies_leaves_the_old_result(folder, seeds):
    before = (folder / "recall.json").read_text()

    def dies(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shelf.measure("recall", seeds, TINY, folder, dies)
    assert (folder / "recall.json").read_text() == before


def test_a_result_under_the_name_of_another_study_is_not_its(folder):
    shutil.copy(folder / "recall.json", folder / "kmeans.json")
    assert list(shelf.held(folder)) == ["recall"]


def test_all_results_of_a_folder_are_held_by_their_study(folder):
    assert list(shelf.held(folder)) == ["recall"]
    (folder / "recall.json").write_text("{}")
    assert shelf.held(folder) == {}


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("peers/h2o.py", True),
        ("rule.py", True),
        ("report/page.py", False),
        ("cli/parse.py", False),
        ("streams/logs.py", True),
    ],
)
def test_the_digest_changes_with_code_that_counts(tmp_path, monkeypatch, file, counts):
    copy = tmp_path / "distinctkv"
    shutil.copytree(Path(shelf.__file__).parents[1], copy)
    monkeypatch.setattr(shelf, "files", lambda _: copy)
    before = shelf.code_digest.__wrapped__()
    with (copy / file).open("a") as source:
        source.write("# changed\n")
    assert (shelf.code_digest.__wrapped__() != before) == counts


def test_a_study_without_its_data_is_shelved_as_not_measured(tmp_path, seeds):
    with streams(tmp_path / "data"):
        made = shelf.measure("tau", seeds, TINY, tmp_path, silent)
        found = shelf.find("tau", seeds, TINY, tmp_path)
    assert made == found
    assert (made.rows, made.passes, made.absent) == ((), True, ("movielens", "mimic", "synpuf"))


def test_it_is_made_again_when_a_stream_arrives(tmp_path, seeds):
    with streams(tmp_path / "data"):
        shelf.measure("tau", seeds, TINY, tmp_path, silent)
    with streams(tmp_path / "data", "mimic"):
        assert shelf.find("tau", seeds, TINY, tmp_path) is None
