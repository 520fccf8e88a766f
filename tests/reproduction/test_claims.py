import pytest

from reproduction import studies
from reproduction.claims import check, claims_for, judge, unmeasured
from reproduction.result import Measure, Row

EXACT = {"paper": 0.90, "tolerance": 0.02}
WORDS = {"paper", "tolerance", "source", "caveat", "contested", "ours", "not_judged", "lower_bound"}


def verdict(mean, sd=0.0, n=4, **wording):
    return judge("toy.table.dp.recall", Measure(mean, sd, n), EXACT | wording)


@pytest.mark.parametrize("mean", [0.88, 0.90, 0.92])
def test_a_number_within_the_papers_spread_holds(mean):
    assert verdict(mean).verdict == "holds"


@pytest.mark.parametrize("mean", [0.87, 0.93])
def test_a_number_outside_it_fails(mean):
    claim = verdict(mean)
    assert (claim.verdict, claim.kind, claim.passes) == ("fails", "fails", False)


def test_sampling_is_allowed_the_margin_of_our_mean():
    assert verdict(0.87, sd=0.02, n=4).tolerance == pytest.approx(0.0518)
    assert verdict(0.87, sd=0.02, n=4).passes
    assert not verdict(0.87, sd=0.02, n=400).passes


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_the_margin_covers_the_truth_in_95_of_100_runs_whatever_the_seeds(n, rng):
    runs = [Measure.of(numbers) for numbers in rng.standard_normal((4000, n)).tolist()]
    covered = sum(abs(run.mean) <= run.margin for run in runs) / len(runs)
    assert covered == pytest.approx(0.95, abs=0.015)


def test_a_better_number_is_no_agreement():
    assert not verdict(1.0).passes


def test_a_qualified_claim_says_so_while_it_holds():
    assert verdict(0.90, caveat="at B=K only").verdict == "holds, at B=K only"
    assert verdict(0.50, caveat="at B=K only").verdict == "fails"


def test_a_contested_claim_has_its_verdict_in_words_and_fails_nothing():
    claim = verdict(0.50, contested="disappears at equal cost", ours=0.5)
    assert (claim.verdict, claim.kind) == ("disappears at equal cost", "contested")
    assert claim.passes


@pytest.mark.parametrize("mean", [0.90, 0.50])
def test_a_number_set_aside_is_not_judged_whatever_it_is(mean):
    claim = verdict(mean, not_judged="one machine's")
    assert (claim.verdict, claim.kind) == ("not judged, one machine's", "not_judged")
    assert claim.passes
    assert not claim.judged


@pytest.mark.parametrize(
    ("mean", "said"), [(0.01, "nothing left"), (0.90, "holds"), (0.4, "fails")]
)
def test_a_contested_claim_says_what_was_measured(mean, said):
    claim = verdict(mean, contested="nothing left", ours=0.0)
    assert (claim.verdict, claim.passes) == (said, said != "fails")


def test_a_claim_carries_all_that_the_verdict_rests_on():
    claim = verdict(0.91, sd=0.01)
    assert (claim.paper, claim.measured, claim.spread) == (0.90, 0.91, 0.01)
    assert verdict(0.91, source="spread").source == "spread"


def test_every_claim_on_the_rows_is_checked():
    rows = (Row("dp", "", {"recall": Measure(1.0, 0.0, 2)}, "", "cache"),)
    found = check("toy", rows, {"table": {"dp": {"recall": {"paper": 1.0, "tolerance": 0.0}}}})
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
        assert {"paper", "tolerance", "source"} <= set(line) <= WORDS
        assert line["source"] in ("spread", "rounding", "ours")
        assert ("contested" in line) == ("ours" in line)
        assert line["tolerance"] > 0


@pytest.mark.parametrize(
    ("study", "table", "row", "measure", "number"),
    [
        ("adaptive", "alternating", "attention", "peak", 864),  # "~450 (grows to 864)"
        ("domains", "logs", "HDFS_numbers_alike_69", "lines", 2000),  # column "events"
    ],
)
def test_no_number_of_a_papers_table_is_left_out(study, table, row, measure, number):
    assert claims_for(study)[table][row][measure]["paper"] == number


@pytest.mark.parametrize(("mean", "kind"), [(0.9, "holds"), (0.0, "holds"), (-0.9, "fails")])
def test_where_the_paper_asks_for_no_less_more_will_do(mean, kind):
    wording = {"paper": 0.0, "tolerance": 0.005, "lower_bound": True}
    assert judge("toy.table.dp.worst", Measure(mean, 0.0, 2), wording).kind == kind


def test_a_claim_on_a_row_without_data_is_marked_as_not_measured():
    rows = (
        Row("dp", "", {"recall": Measure(1.0, 0.0, 2)}, "", "cache"),
        Row("dp_two", "", {}, "", "cache", missing="mimic"),
    )
    found = check("toy", rows, {"table": {"dp": {"recall": EXACT}, "dp_two": {"recall": EXACT}}})
    assert [claim.kind for claim in found] == ["fails", "missing"]
    assert (found[1].paper, found[1].measured) == (0.90, None)
    assert found[1].verdict == "not measured: data missing"


def test_absence_of_one_row_excuses_no_other():
    rows = (Row("dp", "", {}, "", "cache", missing="mimic"),)
    with pytest.raises(ValueError, match=r"toy\.table\.dp_two\.recall, which was not measured"):
        check("toy", rows, {"table": {"dp_two": {"recall": EXACT}}})


def test_without_data_every_claim_of_a_study_is_marked():
    found = unmeasured("tau")
    assert len(found) == sum(
        len(row) for table in claims_for("tau").values() for row in table.values()
    )
    assert {claim.kind for claim in found} == {"missing"}
