import pytest

pytest.importorskip("torch")

from reproduction.studies import hybrid as study
from reproduction.studies.result import Result
from reproduction.studies.study import QUICK


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


def said(size=3000, counted=0.999, **recalls):
    """What is said of a run that went well, with these recalls in place of its own."""
    well = {"ssm": 0.235, "guess": 0.235, "every": 0.235, "once": 0.14, "level": 0.125}
    found = {
        case.name: ({**well, **recalls}.get(case.name, 1.0), counted, 24, size)
        for case in (*study.CASES, *study.CONTROLS)
    }
    found["attention"] = (*found["attention"][:3], 9000)
    rows = [study.row(case, "models", [found] * 3) for case in study.CASES]
    rows += [study.row(case, "controls", [found] * 3) for case in study.CONTROLS]
    return study.reading({row.name: row for row in rows})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "a matrix of 3,000 bytes is on it, too"),
        ({"waves": 0.9}, "a matrix of 3,000 bytes recalls less"),
        ({"hybrid": 0.8}, "the hybrid recalls less than attention."),
        ({"hybrid": 0.2}, "recalls no more than the SSM alone and recalls less than attention."),
        ({"size": 9000}, "the hybrid holds no less than attention."),
    ],
    ids=str,
)
def test_a_middle_ground_is_there_if_it_is(found, words):
    told = said(**found)[3]
    assert words in told
    assert ("So the middle ground is there" in told) == ("matrix" in words)


def test_counting_and_guessing_are_spoken_of_as_they_are():
    assert "Every model here counts: no R² is below 0.999" in said()[0]
    assert "Not every model counts: the R² of SSM only is 0.100" in said(counted=0.1)[0]
    for recall, words in (
        (0.235, "no recall"),
        (0.1, "not learned as much"),
        (0.5, "more than that"),
    ):
        assert words in said(ssm=recall)[1]
