import pytest

from distinctkv import studies
from distinctkv.studies.claims import check, claims_for, judge
from distinctkv.studies.result import Measure, Row

EXACT = {"paper": 0.90, "within": 0.02}
WORDS = {"paper", "within", "but", "instead", "ours"}


def verdict(mean, sd=0.0, n=4, **wording):
    return judge("toy.table.dp.recall", Measure(mean, sd, n), EXACT | wording)


@pytest.mark.parametrize("mean", [0.88, 0.90, 0.92])
def test_a_number_within_the_papers_spread_holds(mean):
    assert verdict(mean).verdict == "holds"


@pytest.mark.parametrize("mean", [0.87, 0.93])
def test_a_number_outside_it_fails(mean):
    claim = verdict(mean)
    assert (claim.verdict, claim.holds) == ("fails", False)


def test_sampling_is_allowed_two_standard_errors():
    assert verdict(0.87, sd=0.02, n=4).tolerance == pytest.approx(0.04)
    assert verdict(0.87, sd=0.02, n=4).holds
    assert not verdict(0.87, sd=0.02, n=400).holds


def test_a_better_number_is_no_agreement():
    assert not verdict(1.0).holds


def test_a_qualified_claim_says_so_while_it_holds():
    assert verdict(0.90, but="at B=K only").verdict == "holds, at B=K only"
    assert verdict(0.50, but="at B=K only").verdict == "fails"


def test_a_contested_claim_has_its_verdict_in_words_and_fails_nothing():
    claim = verdict(0.50, instead="disappears at equal cost")
    assert (claim.verdict, claim.holds) == ("disappears at equal cost", True)


@pytest.mark.parametrize(
    ("mean", "said"), [(0.01, "nothing left"), (0.90, "holds"), (0.4, "fails")]
)
def test_a_contested_claim_says_what_was_measured(mean, said):
    claim = verdict(mean, instead="nothing left", ours=0.0)
    assert (claim.verdict, claim.holds) == (said, said != "fails")


def test_a_claim_carries_all_that_the_verdict_rests_on():
    claim = verdict(0.91, sd=0.01)
    assert (claim.paper, claim.measured, claim.spread) == (0.90, 0.91, 0.01)


def test_every_claim_on_the_rows_is_checked():
    rows = (Row("dp", "", {"recall": Measure(1.0, 0.0, 2)}, "", "cache"),)
    found = check("toy", rows, {"table": {"dp": {"recall": {"paper": 1.0, "within": 0.0}}}})
    assert [claim.id for claim in found] == ["toy.table.dp.recall"]


def test_rows_of_one_name_in_two_tables_are_told_apart():
    near, far = Measure(1.0, 0.0, 2), Measure(0.0, 0.0, 2)
    rows = tuple(
        Row("dp", "", {"recall": one}, "", "cache", table)
        for table, one in (("left", near), ("right", far))
    )
    found = check("toy", rows, {"right": {"dp": {"recall": EXACT}}})
    assert [(claim.table, claim.measured) for claim in found] == [("right", 0.0)]


@pytest.mark.parametrize(("row", "measure"), [("h2o", "recall"), ("dp", "bytes")])
def test_a_claim_on_what_was_not_measured_is_an_error(row, measure):
    rows = (Row("dp", "", {"recall": Measure(1.0, 0.0, 2)}, "", "cache"),)
    with pytest.raises(ValueError, match=f"toy.table.{row}.{measure}, which was not measured"):
        check("toy", rows, {"table": {row: {measure: EXACT}}})


@pytest.mark.parametrize("study", studies.NAMES)
def test_every_claim_names_the_papers_number_and_its_tolerance(study):
    tables = claims_for(study).values()
    for line in (line for table in tables for row in table.values() for line in row.values()):
        assert {"paper", "within"} <= set(line) <= WORDS
        assert line["within"] > 0
