from dataclasses import replace

import pytest

from reproduction.result import Result
from reproduction.studies import mqar as study
from reproduction.studies import mqar_models as models
from reproduction.studies.runner import FULL, QUICK

TINY = replace(
    models.SMALL, width=16, head=16, states=(4, 4), steps=2, batch=2, items=(2,), tokens=16,
    asked=((2, 16), (2, 64), (4, 32), (6, 48), (8, 64), (2, 8), (6, 24)),
)  # fmt: skip


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "size_of", lambda scale: TINY)
        patch.setattr(study, "n_sequences", lambda tokens: 2)
        steps = []
        result = study.run(range(seed, seed + 9), FULL, lambda *step: steps.append(step))
    return result, steps


def test_a_quick_run_has_two_seeds_and_fewer_models(seed, monkeypatch):
    monkeypatch.setattr(study, "size_of", lambda scale: TINY)
    monkeypatch.setattr(study, "n_sequences", lambda tokens: 2)
    result = study.run(range(seed, seed + 9), QUICK)
    assert len(result.seeds) == 2
    assert tuple(row.name for row in result.tables["recall"]) == study.QUICK
    assert list(result.tables) == list(study.HEADINGS)


def test_a_full_run_has_three_seeds_and_reports_its_progress(short):
    result, steps = short
    total = 3 * len(study.METHODS)
    assert len(result.seeds) == 3
    assert steps == [(done, total) for done in range(1, total + 1)]
    assert Result.from_json(result.to_json()) == result


def test_every_table_has_its_rows_and_the_paper_claims_none(short):
    tables = short[0].tables
    names = [method.name for method in study.METHODS]
    assert list(tables) == list(study.HEADINGS)
    assert [row.name for row in tables["recall"]] == [row.name for row in tables["bytes"]] == names
    assert {row.name for row in tables["kinds"]} == {*names, "newest"}
    assert [row.name for row in tables["tau"]] == [f"{tau:g}" for tau in study.TAUS]
    assert short[0].claims == ()  # the paper has no such models


def test_rules_with_a_schedule_hold_no_more_than_ours(short):
    """The same slots at every size; ours has a count more, and rounds no slot up."""
    rows = {row.name: row for row in short[0].tables["bytes"]}
    slot = 4 * 2 * 16 + 8
    for name in ("kvm", "ovq"):
        for column, held in rows[name].measures.items():
            assert held.mean < rows["mass"].measures[column].mean + 16 * slot


def test_at_tau_0_every_token_that_differs_has_a_slot(short):
    rows = {row.name: row.measures["slots"].mean for row in short[0].tables["tau"]}
    assert rows["0"] > rows["0.15"] > rows["0.5"]


def test_fewer_bits_are_fewer_bytes(short):
    held = {row.name: row.measures["bytes"].mean for row in short[0].tables["bits"]}
    assert held["bfloat16_first"] < held["bfloat16"] < held["float32"] == held["float32_first"]


def test_a_fraction_of_the_bytes_is_no_more_than_that(seed, monkeypatch):
    monkeypatch.setattr(study, "n_sequences", lambda tokens: 1)
    model = models.make_model("ovq", TINY).eval()
    rows = study.evaluate_fewer_bytes(model, TINY, seed, (8, 64), 8000.0)
    for (_, part), found in rows.items():
        assert 0.8 * float(part) * 8000 < found["bytes"] <= float(part) * 8000
