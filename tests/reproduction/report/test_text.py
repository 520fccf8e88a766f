from dataclasses import replace

import pytest

from reproduction.claims import claims_for
from reproduction.report import text
from reproduction.studies import NAMES


def verdict(result, name):
    return text.verdict(result, next(row for row in result.rows if row.name == name))


def test_a_row_whose_claims_hold_holds(result):
    found = verdict(result, "dp")
    assert (found.text, found.mark) == ("holds", "✓")
    assert found.lines == ("recall holds: off by 0 ± 0.016, tolerance 0.05",)


def test_a_row_that_differs_names_what_differs(make_result):
    found = verdict(make_result(claimed=0.5), "dp")
    assert (found.text, found.mark) == ("recall: differs", "≠")


def test_a_row_that_the_paper_does_not_have_gets_no_verdict(result):
    found = verdict(result, "extra")
    assert (found.text, found.mark) == ("", "")


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"note": "at B=K only"}, "tolerance 0.05; at B=K only"),
        ({"kind": "repeat"}, "tolerance 0.05; repeat"),
        ({"kind": "searched", "note": "tau searched for it"}, "0.05; tau searched for it"),
        ({"bound": "at least"}, "tolerance 0.05 (paper: at least)"),
        ({"explanation": "a tie"}, "tolerance 0.05; a tie"),
    ],
)
def test_a_line_says_all_that_the_verdict_rests_on(result, changes, end):
    assert text.claim_line(replace(result.claims[0], **changes)).endswith(end)


def test_where_nothing_is_claimed_nothing_is_counted(result):
    assert text.tally([replace(result, claims=())]) == "no independent claims"


def test_the_tally_counts_over_all_studies_and_kinds_apart(make_result):
    repeat = replace(make_result().claims[0], kind="repeat")
    results = [make_result(), make_result(claimed=0.5), replace(make_result(), claims=(repeat,))]
    assert text.tally(results) == (
        "2 independent claims: 1 holds, 1 differs, 0 inconclusive; repeat: 1 of 1 hold"
    )


def test_rows_that_differ_in_the_same_words_are_named_together(result):
    (claim,) = result.claims
    tie = replace(claim, verdict="differs", explanation="a tie")
    claims = (tie, replace(tie, id="recall.table.h2o.recall"))
    (discrepancy,) = text.discrepancies(replace(result, claims=claims))
    assert discrepancy.where == "Ours, Heavy [bold]"
    assert (discrepancy.text, discrepancy.mark) == ("recall differs: a tie", "≠")


def test_a_study_that_agrees_has_no_discrepancies(result):
    assert text.discrepancies(result) == []
    assert text.score(result) == "1 of 1 hold"


def test_what_was_not_measured_is_counted_apart(partly):
    assert text.tally([partly]) == (
        "2 independent claims: 1 holds, 0 differ, 0 inconclusive, 1 not measured"
    )
    assert text.score(partly) == "1 of 1 hold; 1 not measured: data missing"


def test_without_data_nothing_holds(lacking):
    assert text.tally([lacking]).startswith("1 independent claim: 0 hold, 0 differ")
    assert text.score(lacking) == "1 not measured: data missing"


def test_a_row_without_data_says_so_and_is_no_discrepancy(partly):
    found = verdict(partly, "drugs")
    assert (found.text, found.mark) == ("not measured: data missing", "○")
    assert text.cell(partly.rows[0], "recall") == "–"
    assert text.discrepancies(partly) == []


def test_the_way_out_is_named(result, lacking):
    said = text.missing_notice(lacking)
    assert said.startswith(
        "Missing data: mimic, synpuf. Run python -m reproduction.data get NAME for each"
    )
    assert "DISTINCTKV_DATA" in said
    assert text.missing_notice(result) == ""


def test_an_added_row_without_data_names_what_it_lacks(partly):
    found = verdict(replace(partly, claims=()), "drugs")
    assert (found.text, found.mark) == ("not measured: mimic missing", "○")


@pytest.mark.parametrize("study", NAMES)
def test_no_digit_of_the_paper_is_lost(study):
    rows = [row for table in claims_for(study).values() for row in table.values()]
    numbers = [wording["paper"] for row in rows for wording in row.values()]
    assert [float(text.printed(number).replace(",", "")) for number in numbers] == numbers


@pytest.mark.parametrize("number", [1e-5, 1.5e-7, 0.005, 12345.67, 1234567.5, 1234567])
def test_no_digit_is_lost_however_large_or_small_a_number(number):
    assert float(text.printed(number).replace(",", "")) == number
    assert "e" not in text.printed(number)
