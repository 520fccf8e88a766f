import pytest

pytest.importorskip("torch")

from distinctkv.studies import hybrid as study
from distinctkv.studies.result import Result
from distinctkv.studies.study import QUICK


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "STEPS", 2)
        patch.setattr(study, "ASKED", 8)
        seen = []
        found = study.run(range(seed, seed + 9), QUICK, lambda *step: seen.append(step))
    return found, seen


def test_a_quick_run_has_three_seeds_and_tells_its_progress(short):
    result, seen = short
    assert len(result.seeds) == 3
    assert seen == [(done, 6) for done in range(1, 7)]


def test_every_number_of_the_paper_is_judged(short):
    rows = {claim.row for claim in short[0].claims}
    assert rows == {"ssm", "attention", "hybrid"}
    assert len(short[0].claims) == 9


def test_controls_have_recall_alone_and_repeat_the_first_row(short):
    tables = short[0].tables
    assert {tuple(row.measures) for row in tables["controls"]} == {("recall",)}
    ssm = next(row for row in tables["models"] if row.name == "ssm")
    every = next(row for row in tables["controls"] if row.name == "every")
    assert every.measures["recall"] == ssm.measures["recall"]


def test_a_result_can_be_read_back(short):
    assert Result.from_json(short[0].to_json()) == short[0]
