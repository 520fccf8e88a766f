from itertools import product

import pytest

pytest.importorskip("matplotlib")

from distinctkv.report import figures, words
from distinctkv.studies import llm as study
from distinctkv.studies import llm_model
from distinctkv.studies.result import Result
from distinctkv.studies.study import QUICK
from tests.studies.spelling import Words
from tests.studies.toys import nowhere

WAYS = [
    "full",
    "threshold",
    *(study.at(name, part) for name, part in product((*study.OURS, *study.RIVALS), study.PARTS)),
]


def found(*seeds):
    """Numbers that tell the ways and the contexts apart."""
    return [
        study.Found(task, way, (0.1 * seed, 1.0, 0.25, 1000.0 * place))
        for seed in seeds
        for task in study.TASKS
        for place, way in enumerate(WAYS, start=1)
    ]


def test_without_the_model_nothing_is_measured_and_the_reason_is_told(tmp_path):
    pytest.importorskip("transformers")
    with nowhere(tmp_path):
        result = study.run(range(3), QUICK)
    assert result.absent == ("smollm2",)
    assert not result.rows
    assert "python -m benchmarks.llm.fetch" in words.plea(result)


def test_a_model_is_found_by_its_files(tmp_path):
    with nowhere(tmp_path):
        assert llm_model.find() is None
        folder = tmp_path / llm_model.FOLDER
        folder.mkdir()
        for name in llm_model.FILES:
            assert llm_model.find() is None
            (folder / name).write_text("{}")
        assert llm_model.find() == folder


def test_every_way_has_a_row_in_every_table():
    result = study.result(found(1, 2), (1, 2), QUICK)
    assert {name: len(rows) for name, rows in result.tables.items()} == dict.fromkeys(
        study.TASKS, len(WAYS)
    )
    assert Result.from_json(result.to_json()) == result


def test_a_row_is_the_mean_over_contexts():
    result = study.result(found(1, 3), (1, 3), QUICK)
    assert result.rows[0].measures["accuracy"].mean == pytest.approx(0.2)


def test_a_line_runs_from_fewer_bytes_to_more():
    result = study.result(found(1, 2), (1, 2), QUICK)
    rows = {(row.table, row.name): row.measures for row in result.rows}
    line = next(one for one in result.series if one.name == "logs/ours")
    assert line.x == (rows["logs", "ours_8"]["bytes"].mean, rows["logs", "ours_4"]["bytes"].mean)


def test_there_is_a_figure_for_each_kind_of_context():
    result = study.result(found(1, 2), (1, 2), QUICK)
    drawn = figures.pictures(result)
    assert [picture.name for picture in drawn] == [f"llm-{task}" for task in study.TASKS]
    labels = [*study.OURS.values(), "Full cache", "at threshold 1"]
    assert all(label in picture.standalone() for picture in drawn for label in labels)


def test_a_quick_run_has_three_seeds_and_tells_its_progress(monkeypatch, tmp_path):
    numbers = found(1)
    monkeypatch.setattr(llm_model, "lacking", tuple)
    monkeypatch.setattr(llm_model, "find", lambda: tmp_path)
    monkeypatch.setattr(llm_model, "described", dict)
    monkeypatch.setattr(llm_model, "load", lambda folder: (None, None))
    monkeypatch.setattr(study, "measure", lambda *case: [n for n in numbers if n.task == case[2]])
    seen = []
    result = study.run(range(9), QUICK, lambda *step: seen.append(step))
    assert result.seeds == (0, 1, 2)
    assert seen == [(done, 9) for done in range(1, 10)]


def test_every_cache_is_measured_at_the_part_it_may_keep(monkeypatch, seed):
    pytest.importorskip("transformers")
    from tests.hf.models import build

    monkeypatch.setattr(study, "LENGTH", 200)
    monkeypatch.setattr(study, "PARTS", (0.5, 0.3))
    measured = list(study.measure(build(seed), Words(size=64), "logs", seed))
    kept = {one.way: one.numbers[2] for one in measured}
    size = {one.way: one.numbers[3] for one in measured}
    assert kept["full"] == 1
    for part in study.PARTS:
        for name in (*study.OURS, *study.RIVALS):
            assert kept[study.at(name, part)] == pytest.approx(part, abs=0.02)
        assert size[study.at("h2o", part)] == pytest.approx(part * size["full"], rel=0.02)


def test_the_care_that_is_told_is_the_one_that_is_taken():
    pytest.importorskip("transformers")
    from distinctkv.hf import CAREFUL, Care

    told = dict(one.split("=") for one in study.CARE.split(", "))
    usual = {name: str(getattr(Care(), name)) for name in Care.__slots__}
    assert {**usual, **told} == {name: str(getattr(CAREFUL, name)) for name in Care.__slots__}
