from dataclasses import replace

import pytest

pytest.importorskip("torch")

from distinctkv.studies import five_models as study
from distinctkv.studies.result import Result
from distinctkv.studies.study import QUICK


@pytest.fixture(scope="module")
def short(seed):
    """All models, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        cases = tuple(replace(case, steps=min(case.steps, 1)) for case in study.CASES)
        patch.setattr(study, "CASES", cases)
        patch.setattr(study, "BATCHES", 1)
        seen = []
        found = study.run(range(seed, seed + 9), QUICK, lambda *step: seen.append(step))
    return found, seen


def test_a_quick_run_has_three_seeds_and_tells_its_progress(short):
    result, seen = short
    total = 3 * len(study.CASES)
    assert len(result.seeds) == 3
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_slots_and_parameters_are_the_papers_whatever_the_training(short):
    claims = [claim for claim in short[0].claims if claim.measure != "recall"]
    assert len(claims) == 10
    assert all(claim.kind == "holds" for claim in claims)


def test_the_cosine_row_has_the_bytes_of_the_cache(short):
    rows = {row.name: row for row in short[0].rows}
    assert rows["cosine"].measures["bytes"] == rows["rule"].measures["bytes"]


def test_a_result_can_be_read_back(short):
    assert Result.from_json(short[0].to_json()) == short[0]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rule", "gate", "cosine"])
def test_a_model_trains_on_the_device(name, seed):
    case = next(one for one in study.CASES if one.name == name)
    recall, *_ = study.measure(case, seed)
    assert study.device() == "cuda"
    assert recall > 0.99
