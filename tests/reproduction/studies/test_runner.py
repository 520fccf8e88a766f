import json
import shutil
from types import SimpleNamespace

import pytest

from reproduction import claims, studies
from reproduction.data import NAMES
from reproduction.result import Measure, Result, Row
from reproduction.studies import load, runner
from reproduction.studies.runner import FULL, QUICK, Scale, missing_data, silent, sources
from tests.reproduction.studies.small_streams import nowhere, streams, write_log

TINY = Scale("tiny", 0.01)


@pytest.mark.parametrize("part", [0.0, -0.5, 1.5])
def test_a_scale_is_a_part_of_the_full_size(part):
    with pytest.raises(ValueError, match="a part in"):
        Scale("odd", part)


def test_the_smallest_scale_still_runs_something():
    assert Scale("tiny", 1e-9).of(300) == 1


@pytest.mark.parametrize("name", studies.NAMES)
def test_settings_differ_between_scales(name):
    assert load(name).settings(QUICK) != load(name).settings(FULL)


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no study 'recal'; there are recall"):
        load("recal")


# Results on disk


@pytest.fixture
def seeds(seed):
    return (seed, seed + 1)


@pytest.fixture
def folder(tmp_path, seeds):
    runner.run_study("recall", seeds, TINY, tmp_path / "new", silent)
    return tmp_path / "new"


def edit(folder, change):
    path = folder / "recall.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def test_a_finished_study_is_found_again(folder, seeds):
    found = runner.find_result("recall", seeds, TINY, folder)
    assert found is not None
    assert found.to_json() == (folder / "recall.json").read_text()
    assert [path.name for path in folder.iterdir()] == ["recall.json"]


def test_nothing_is_found_in_an_empty_folder(tmp_path, seeds):
    assert runner.find_result("recall", seeds, TINY, tmp_path) is None
    assert runner.read_results(tmp_path) == ()


def test_other_seeds_or_another_scale_are_another_result(folder, seed, seeds):
    assert runner.find_result("recall", (seed, seed + 2), TINY, folder) is None
    assert runner.find_result("recall", seeds, Scale("tiny", 0.02), folder) is None


def test_a_study_that_uses_few_of_its_seeds_is_found_by_all_of_them(folder, seeds, monkeypatch):
    study = load("recall")
    plain = study.settings(TINY)
    monkeypatch.setattr(study, "settings", lambda scale: {**plain, "seeds_used": 2})
    edit(folder, lambda raw: raw["settings"].update(seeds_used=2))
    assert runner.find_result("recall", (*seeds, 70, 71), TINY, folder) is not None
    assert runner.find_result("recall", (70, *seeds), TINY, folder) is None


def test_a_result_of_other_code_is_not_found(folder, seeds):
    edit(folder, lambda raw: raw["versions"].update(code="another"))
    assert runner.find_result("recall", seeds, TINY, folder) is None
    assert runner.read_results(folder) == ()


def test_a_damaged_file_is_no_result(folder, seeds):
    path = folder / "recall.json"
    path.write_text(path.read_text()[:-40])
    assert runner.find_result("recall", seeds, TINY, folder) is None
    assert runner.read_results(folder) == ()


def test_a_run_that_dies_leaves_the_old_result(folder, seeds):
    before = (folder / "recall.json").read_text()

    def dies(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run_study("recall", seeds, TINY, folder, dies)
    assert (folder / "recall.json").read_text() == before


def test_a_result_under_the_name_of_another_study_is_not_its(folder):
    shutil.copy(folder / "recall.json", folder / "kmeans.json")
    assert [result.study for result in runner.read_results(folder)] == ["recall"]


def test_claims_are_judged_when_a_result_is_read(folder, monkeypatch):
    wording = {"table": {"dp": {"recall": {"paper": 0.5, "tolerance": 0.01}}}}
    monkeypatch.setattr(claims, "claims_for", lambda study: wording)
    (result,) = runner.read_results(folder)
    assert [claim.verdict for claim in result.claims] == ["differs"]


# What a result depends on


@pytest.fixture
def sources_copy(tmp_path, monkeypatch):
    """A copy of the repository's code from which digests are taken."""
    for name, root in runner.ROOTS.items():
        shutil.copytree(root, tmp_path / name)
    monkeypatch.setattr(runner, "ROOTS", {name: tmp_path / name for name in runner.ROOTS})
    runner.code_digest.cache_clear()
    runner.syntax_tree.cache_clear()
    yield tmp_path
    runner.code_digest.cache_clear()
    runner.syntax_tree.cache_clear()


@pytest.mark.parametrize(
    ("study", "file", "counts"),
    [
        ("recall", "distinctkv/rule.py", True),
        ("recall", "reproduction/studies/recall.py", True),
        ("recall", "reproduction/studies/kmeans.py", False),
        ("recall", "reproduction/report/page.py", False),
        ("recall", "reproduction/claims.toml", False),
        ("recall", "distinctkv/cli/parse.py", False),
        ("recall", "distinctkv/logs/parser.py", False),
        ("recall", "distinctkv/nn/distinct.py", False),
        ("logs", "distinctkv/logs/parser.py", True),
        ("hybrid", "distinctkv/nn/allocation.py", True),
    ],
)
def test_the_digest_of_a_study_changes_with_the_code_that_it_imports(
    sources_copy, study, file, counts
):
    before = runner.code_digest(study)
    with (sources_copy / file).open("a") as source:
        source.write("# changed\n")
    runner.code_digest.cache_clear()
    assert (runner.code_digest(study) != before) == counts


def test_imports_are_followed_through_packages_and_functions(tmp_path, monkeypatch):
    files = {
        "toy/__init__.py": "from .a import A\nfrom .b import B\n",
        "toy/a.py": "def A():\n    from .deep import c\n    import toy.d, os\n",
        "toy/b.py": "B = 1\n",
        "toy/d.py": "",
        "toy/deep/__init__.py": "from .. import e\n",
        "toy/deep/c.py": "from ..e import *\n",
        "toy/e.py": "from toy import A\n",
        "toy/main.py": "from . import A\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(runner, "ROOTS", {"toy": tmp_path / "toy"})
    runner.syntax_tree.cache_clear()
    assert runner.imported("toy.main") == {"toy.main", "toy.a", "toy.deep.c", "toy.d", "toy.e"}
    runner.syntax_tree.cache_clear()


# Missing data


def test_a_study_without_its_data_is_not_measured_until_a_stream_arrives(tmp_path, seeds):
    with streams(tmp_path / "data"):
        made = runner.run_study("tau", seeds, TINY, tmp_path, silent)
        assert runner.find_result("tau", seeds, TINY, tmp_path) == made
    assert (made.rows, made.missing) == ((), ("movielens", "mimic", "synpuf"))
    with streams(tmp_path / "data", "mimic"):
        assert runner.find_result("tau", seeds, TINY, tmp_path) is None


def test_all_streams_are_absent_where_there_are_none(tmp_path):
    with nowhere(tmp_path):
        assert missing_data(*NAMES) == NAMES


def test_a_system_of_loghub_is_found_by_itself(tmp_path):
    write_log(tmp_path, "BGL", n_lines=8)
    with nowhere(tmp_path):
        assert missing_data("loghub", "loghub/BGL", "loghub/HDFS") == ("loghub/HDFS",)


def test_a_setting_says_from_which_file_a_stream_is_read(tmp_path):
    write_log(tmp_path, "BGL", n_lines=8)
    with nowhere(tmp_path):
        said = sources("loghub/BGL", "mimic")
    assert said == (
        "loghub/BGL: loghub_2k/BGL/BGL_2k.log, loghub_2k/BGL/BGL_2k.log_structured.csv; "
        "mimic: missing"
    )


def test_an_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="no stream 'mimics'"):
        missing_data("mimics")


# Studies that train


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
@pytest.mark.parametrize("name", ["hybrid", "five_models", "mqar"])
def test_every_claim_on_a_trained_study_passes(name, scale):
    result = load(name).run(range(10), scale)
    assert [claim.id for claim in result.claims if claim.unexplained] == []


# Inconclusive claims


@pytest.fixture
def study_of_few_seeds(monkeypatch):
    """In place of ``recall``: .91, varying by .01, from three seeds or as many as are asked for."""
    used = []

    def run(seeds, scale, progress):
        n = max(3, scale.seeds)
        used.append(n)
        row = Row("dp", "", {"recall": Measure(0.91, 0.01, n)}, "", "cache")
        made = Result("recall", "", "", (), (row,), settings(scale), tuple(seeds)[:n])
        return runner.finish(made, 0.0)

    def settings(scale):
        return {"scale": scale.name, "seeds_used": max(3, scale.seeds)}

    monkeypatch.setattr(runner, "load", lambda _: SimpleNamespace(run=run, settings=settings))
    return used


@pytest.mark.parametrize(
    ("paper", "n_seeds", "used"),
    [
        (0.91, 10, [3, 4]),  # it holds with four
        (0.92, 10, [3, 7]),
        (0.92, 4, [3]),  # four settle nothing
        (0.93, 10, [3]),  # on the edge: no number of seeds does
        (0.50, 10, [3]),  # it differs
    ],
)
def test_inconclusive_claims_take_as_many_seeds_as_settle_them(
    study_of_few_seeds, monkeypatch, tmp_path, paper, n_seeds, used
):
    wording = {"table": {"dp": {"recall": {"paper": paper, "tolerance": 0.02}}}}
    monkeypatch.setattr(claims, "claims_for", lambda study: wording)
    made = runner.run_study("recall", range(n_seeds), QUICK, tmp_path, silent)
    assert study_of_few_seeds == used
    assert (made.claims[0].verdict == "inconclusive") == (paper == 0.93 or n_seeds == 4)
    assert runner.find_result("recall", range(n_seeds), QUICK, tmp_path) == made
