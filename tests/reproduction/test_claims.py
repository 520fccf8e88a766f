import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from reproduction import claims, studies
from reproduction.claims import check, claims_for, judge, unmeasured
from reproduction.result import Measure, Result, Row

EXACT = {"paper": 0.90, "tolerance": 0.02}
WORDS = {
    *("paper", "tolerance", "source", "kind", "bound", "once", "note", "explanation"),
}
KINDS = ("measured", "searched", "repeat", "by construction", "file count")


def verdict(mean, sd=0.0, n=4, **wording):
    return judge("toy.table.dp.recall", Measure(mean, sd, n), EXACT | wording)


# The equivalence test


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        (0.88, "holds"),
        (0.90, "holds"),
        (0.92, "holds"),
        (0.87, "differs"),
        (0.93, "differs"),
        (1.0, "differs"),  # better is no agreement
    ],
)
def test_without_spread_the_tolerance_decides(mean, said):
    assert verdict(mean).verdict == said


@pytest.mark.parametrize(
    ("mean", "sd", "n", "said"),
    [
        (0.90, 0.01, 10, "holds"),
        (0.91, 0.02, 10, "inconclusive"),
        (0.95, 0.02, 10, "differs"),
        (0.50, 0.60, 2, "inconclusive"),  # never "holds", however large the margin
        (0.90, 0.60, 2, "inconclusive"),
        (0.50, 0.01, 2, "differs"),
    ],
)
def test_the_margin_counts_against_both_verdicts(mean, sd, n, said):
    assert verdict(mean, sd, n).verdict == said


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("bound", [None, "at least", "at most"])
@pytest.mark.parametrize("sd", [0.0, 0.003, 0.1])
def test_the_verdict_follows_from_distance_margin_and_tolerance(once, bound, sd, rng):
    wording = {"once": once} | ({"bound": bound} if bound else {})
    for mean in rng.uniform(0.8, 1.0, 40):
        claim = verdict(float(mean), sd, 5, **wording)
        assert (claim.verdict == "holds") == (
            round(claim.distance + claim.margin - claim.tolerance, 12) <= 0
        )
        assert (claim.verdict == "differs") == (
            round(claim.distance - claim.margin - claim.tolerance, 12) > 0
        )


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
def test_the_margin_covers_the_truth_in_95_of_100_runs_whatever_the_seeds(n, rng):
    runs = [Measure.of(numbers) for numbers in rng.standard_normal((4000, n)).tolist()]
    covered = sum(abs(run.mean) <= run.margin for run in runs) / len(runs)
    assert covered == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_the_draw_margin_covers_one_more_draw_in_95_of_100_runs(n, rng):
    draws = rng.standard_normal((4000, n + 1)).tolist()
    runs = [(Measure.of(seeds), draw) for *seeds, draw in draws]
    covered = sum(abs(run.mean - draw) <= run.draw_margin for run, draw in runs) / len(runs)
    assert covered == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("bound", "mean", "said"),
    [
        ("at least", 1.5, "holds"),
        ("at least", 0.90, "inconclusive"),
        ("at least", 0.5, "differs"),
        ("at most", 0.5, "holds"),
        ("at most", 0.90, "inconclusive"),
        ("at most", 1.5, "differs"),
    ],
)
def test_of_a_bound_only_the_wrong_side_counts(bound, mean, said):
    assert verdict(mean, sd=0.05, n=5, bound=bound).verdict == said


# A number that the paper draws once


def drawn(numbers, paper, tolerance=0.5):
    wording = {"paper": paper, "tolerance": tolerance, "once": True}
    return judge("toy.table.dp.slots", Measure.of(numbers), wording)


@pytest.mark.parametrize(("paper", "said"), [(628, "holds"), (631, "holds"), (600, "differs")])
def test_one_draw_is_compared_with_draws_and_not_with_their_mean(paper, said):
    assert drawn([627.0, 630.0, 631.0], paper).verdict == said


def test_draws_that_spread_widely_agree_with_nothing():
    numbers = [0.50, 0.92, 0.70]
    assert drawn(numbers, 0.71, 0.005).verdict == "inconclusive"
    assert drawn([0.60, 0.61, 0.62], 0.92, 0.005).verdict == "differs"


def test_the_allowance_for_one_draw_is_at_most_the_largest_spread_of_the_paper():
    assert drawn([0.4, 0.6, 0.8], 0.6, 0.005).tolerance == pytest.approx(0.035)
    assert drawn([400.0, 600.0, 800.0], 600).tolerance == pytest.approx(18.5)


# What a claim carries


@pytest.mark.parametrize("mean", [0.9, 0.5])
def test_an_explanation_is_shown_only_where_it_differs(mean):
    claim = verdict(mean, explanation="the streams are not the same", note="at B=K")
    assert claim.explanation == ("the streams are not the same" if mean == 0.5 else "")
    assert claim.note == "at B=K"
    assert not claim.unexplained


def test_only_a_difference_without_explanation_is_unexplained():
    assert verdict(0.5).unexplained
    assert not verdict(0.9).unexplained
    assert not verdict(0.5, sd=0.6, n=2).unexplained


def test_a_claim_carries_all_that_the_verdict_rests_on():
    claim = verdict(0.91, sd=0.01, n=10, source="spread", kind="searched")
    assert (claim.paper, claim.measured, claim.spread, claim.n) == (0.90, 0.91, 0.01, 10)
    assert (claim.tolerance, claim.source, claim.kind) == (0.02, "spread", "searched")
    assert claim.margin == pytest.approx(2.26 * 0.01 / 10**0.5)
    assert (claim.difference, claim.distance) == (0.01, 0.01)


# All claims of a study


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


def test_a_claim_on_a_row_without_data_is_marked_as_not_measured():
    rows = (
        Row("dp", "", {"recall": Measure(1.0, 0.0, 2)}, "", "cache"),
        Row("dp_two", "", {}, "", "cache", missing="mimic"),
    )
    found = check("toy", rows, {"table": {"dp": {"recall": EXACT}, "dp_two": {"recall": EXACT}}})
    assert [claim.verdict for claim in found] == ["differs", "not measured"]
    assert (found[1].paper, found[1].measured, found[1].distance) == (0.90, None, None)


def test_absence_of_one_row_excuses_no_other():
    rows = (Row("dp", "", {}, "", "cache", missing="mimic"),)
    with pytest.raises(ValueError, match=r"toy\.table\.dp_two\.recall, which was not measured"):
        check("toy", rows, {"table": {"dp_two": {"recall": EXACT}}})


def test_without_data_every_claim_of_a_study_is_marked():
    found = unmeasured("tau")
    assert len(found) == sum(
        len(row) for table in claims_for("tau").values() for row in table.values()
    )
    assert {claim.verdict for claim in found} == {"not measured"}


# More seeds, and the tally


@pytest.fixture
def result(monkeypatch):
    """A result with one claim, measured with the given mean, spread and number of seeds."""
    tables = {"table": {"dp": {"recall": EXACT}}}
    monkeypatch.setattr(claims, "claims_for", lambda study: tables)

    def make(mean, sd, n):
        row = Row("dp", "", {"recall": Measure(mean, sd, n)}, "", "cache")
        return claims.attach(Result("toy", "", "", (), (row,), {}, ()))

    return make


@pytest.mark.parametrize(
    ("mean", "sd", "n", "wanted"),
    [
        (0.90, 0.0, 3, 0),  # it holds
        (0.50, 0.0, 3, 0),  # it differs
        (0.91, 0.01, 3, 7),
        (0.92, 0.01, 3, 0),  # on the edge: no number of seeds would settle it
        (0.90, 0.60, 3, 0),  # ten are not enough
    ],
)
def test_more_seeds_are_wanted_where_they_would_settle_a_claim(result, mean, sd, n, wanted):
    assert claims.seeds_wanted(result(mean, sd, n)) == wanted
    if wanted:
        assert result(mean, sd, wanted).claims[0].verdict != "inconclusive"
        assert result(mean, sd, wanted - 1).claims[0].verdict == "inconclusive"


def test_no_seeds_are_spent_on_claims_that_do_not_count(result):
    made = result(0.91, 0.01, 3)
    searched = tuple(replace(claim, kind="searched") for claim in made.claims)
    assert claims.seeds_wanted(replace(made, claims=searched)) == 0


def test_the_tally_counts_kinds_apart(result):
    (claim,) = result(0.90, 0.0, 3).claims
    every = tuple(replace(claim, kind=kind) for kind in KINDS)
    found = claims.tally([replace(result(0.90, 0.0, 3), claims=(*every, verdict(0.5)))])
    assert {kind: dict(count) for kind, count in found.items()} == {
        **{kind: {"holds": 1} for kind in KINDS},
        "measured": {"holds": 1, "differs": 1},
    }


def test_the_headline_counts_claims_that_could_have_failed(result):
    made = result(0.90, 0.0, 3)
    found = [*made.claims, verdict(0.5), *[verdict(0.9, kind="by construction")] * 9]
    assert claims.headline([replace(made, claims=(*found, *unmeasured("toy")))]) == (
        "3 independent claims: 1 holds, 1 differs, 0 inconclusive, 1 not measured"
    )


# The file


def lines(study):
    tables = claims_for(study)
    return {
        f"{study}.{table}.{row}.{measure}": wording
        for table, rows in tables.items()
        for row, measures in rows.items()
        for measure, wording in measures.items()
    }


@pytest.mark.parametrize("study", studies.NAMES)
def test_every_claim_names_the_papers_number_and_its_tolerance(study):
    for line in lines(study).values():
        assert {"paper", "tolerance", "source"} <= set(line) <= WORDS
        assert line["source"] in ("spread", "rounding", "ours")
        assert line.get("kind", "measured") in KINDS
        assert line.get("bound", "at least") in ("at least", "at most")
        assert line["tolerance"] > 0


@pytest.mark.parametrize("study", studies.NAMES)
def test_a_number_at_a_searched_setting_says_so(study):
    for line in lines(study).values():
        assert (line.get("kind") == "searched") == ("searched" in line.get("note", ""))


@pytest.mark.parametrize("study", studies.NAMES)
def test_every_verdict_could_have_come_out_otherwise(study):
    """A number far from the paper's differs, whatever the claim; a bound has one wrong side."""
    for name, line in lines(study).items():
        if line.get("kind") == "by construction":
            continue
        wrong = -1 if line.get("bound") == "at least" else 1
        far = line["paper"] + wrong * max(0.2, 0.2 * abs(line["paper"]), 2 * line["tolerance"])
        for n, sd in ((2, 0.0), (5, 0.02 * abs(far - line["paper"]))):
            assert judge(name, Measure(line["paper"], 0.0, n), line).verdict == "holds"
            assert judge(name, Measure(far, sd, n), line).verdict == "differs", name


def test_claims_by_construction_are_slots_and_parameters():
    """They cannot fail, so the test above leaves them out; these are all of them."""
    found = Counter(
        (study, name.rpartition(".")[2])
        for study in studies.NAMES
        for name, line in lines(study).items()
        if line.get("kind") == "by construction"
    )
    assert found == {
        ("recall", "slots"): 5,
        ("real_frontier", "slots"): 5,
        ("gates", "slots"): 4,
        ("hybrid", "slots"): 2,
        ("five_models", "slots"): 4,
        ("five_models", "parameters"): 5,
        ("adaptive", "phase end"): 4,
        ("adaptive", "peak"): 1,
        ("adaptive_real", "phase end"): 2,
    }


def test_the_page_counts_the_tolerances_that_are_ours():
    sources = Counter(
        line.get("source", "ours")
        for study in studies.NAMES
        for line in lines(study).values()
        if line.get("kind", "measured") == "measured"
    )
    text = (Path(__file__).parents[2] / "docs/do/reproduce.md").read_text(encoding="utf-8")
    assert f"{sources['ours']} of the {sources.total()} independent claims" in text


def test_the_readme_counts_the_claims_of_the_file():
    found = Counter(
        line.get("kind", "measured") == "measured"
        for study in studies.NAMES
        for line in lines(study).values()
    )
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    numbers = re.search(
        r"of (\d+) independent claims (\d+) hold, (\d+) differ, (\d+) is inconclusive", text
    )
    total, *verdicts = map(int, numbers.groups())
    assert total == sum(verdicts) == found[True]
    assert f"Another {found[False]} numbers" in text
