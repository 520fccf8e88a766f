from dataclasses import replace

import pytest

pytest.importorskip("torch")

from reproduction.studies import five_models as study
from reproduction.studies.claims import claims_for
from reproduction.studies.result import Measure, Result
from reproduction.studies.study import QUICK


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


def said(**recalls):
    """What is said of the paper's own numbers, and of these recalls in their place or beside them.

    Rows that the paper has not hold the bytes of the cache.
    """
    paper = claims_for("five_models")["table"]
    rows = {}
    for case in study.CASES:
        given = {name: wording["paper"] for name, wording in paper.get(case.name, {}).items()}
        given = {"recall": 1.0, "slots": 128, "parameters": 1, **given, "bytes": 1000}
        given["bytes"] *= 4 if case.name == "attention" else 1
        given["recall"] = recalls.get(case.name, given["recall"])
        rows[case.name] = study.row(case, [tuple(given[name] for name in study.MEASURES)] * 5)
    return study.reading(rows)


def test_the_papers_numbers_come_out_if_they_do():
    assert "The five rows come out as in the paper" in said()[0]
    words = said(gate=0.9, ssm=0.2)
    assert "Of the paper's 15 numbers 2 do not come out: recall of Fixed-state SSM, " in words[0]
    assert "recall of Novelty gate (ours)" in words[0]
    assert "come out as" not in words[0]


def test_what_is_saved_depends_on_what_is_recalled():
    assert "saves bytes against attention, and not against a fixed" in said()[4]
    assert "no fixed state did as well" in said(cosine=0.8)[4]
    assert "does not do with fewer bytes what attention does" in said(rule=0.9)[4]
    assert said(attention=0.1)[4].startswith("Attention itself recalls 0.100")


def test_other_rows_are_spoken_of_as_they_are():
    assert "The saliency gate's 0.273 is arithmetic" in said(saliency=0.2734)[1]
    assert "which is not what one would expect" in said(saliency=0.9)[1]
    assert "near chance" in said()[2]
    assert "recalls more than chance" in said(ssm=0.5)[2]


def test_rows_of_nothing_conclude_nothing():
    nothing = {name: Measure(0.0, 0.0, 5) for name in study.MEASURES}
    rows = {
        case.name: replace(study.row(case, [(0.0,) * 4] * 2), measures=nothing)
        for case in study.CASES
    }
    words = " ".join(study.reading(rows))
    assert "15 do not come out" in words
    assert not any(claim in words for claim in ("as in the paper,", "is arithmetic", "saves bytes"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rule", "gate", "cosine"])
def test_a_model_trains_on_the_device(name, seed):
    case = next(one for one in study.CASES if one.name == name)
    recall, *_ = study.measure(case, seed)
    assert study.device() == "cuda"
    assert recall > 0.99
