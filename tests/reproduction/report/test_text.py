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


def test_a_row_that_fails_names_what_fails(make_result):
    found = verdict(make_result(claimed=0.5), "dp")
    assert (found.text, found.mark) == ("fails: recall", "✗")


def test_a_row_that_the_paper_does_not_have_gets_no_verdict(result):
    found = verdict(result, "extra")
    assert (found.text, found.mark) == ("", "")


def test_a_qualified_claim_speaks_for_its_row(result):
    claim = replace(result.claims[0], verdict="holds, at B=K only")
    found = verdict(replace(result, claims=(claim,)), "dp")
    assert found.text == "recall: holds, at B=K only"


def test_a_contested_claim_is_not_marked_as_one_that_holds(result):
    claim = replace(result.claims[0], verdict="disappears at equal cost", kind="contested")
    contested = replace(result, claims=(claim,))
    assert verdict(contested, "dp").mark == "≠"
    assert text.tally([result, contested]) == "1 of 2 claims hold, 1 contested"


def test_a_number_set_aside_is_told_and_not_counted(result):
    claim = replace(result.claims[0], verdict="not judged, one machine's", kind="not_judged")
    aside = replace(result, claims=(claim,))
    assert verdict(aside, "dp").text == "recall: not judged, one machine's"
    assert verdict(aside, "dp").mark == "·"
    assert text.tally([result, aside]) == "1 of 1 claims hold"
    assert text.score(aside) == "0 of 0 hold"
    assert text.discrepancies(aside) == []


def test_where_nothing_is_claimed_nothing_is_counted(result):
    assert text.tally([replace(result, claims=())]) == "no claims to check"


def test_the_tally_counts_over_all_studies(make_result):
    results = [make_result(), make_result(claimed=0.5)]
    assert text.tally(results) == "1 of 2 claims hold"


def test_rows_that_differ_in_the_same_words_are_named_together(result):
    row, *_ = (row for row in result.rows if result.claims_of(row))
    claims = tuple(replace(claim, verdict="a tie", kind="contested") for claim in result.claims)
    contested = replace(result, claims=claims)
    discrepancy, *_ = text.discrepancies(contested)
    assert row.label in discrepancy.where
    assert (discrepancy.kind, discrepancy.mark) == ("contested", "≠")
    assert text.score(contested).startswith("0 of")


def test_a_study_that_agrees_leaves_no_doubt(result):
    claims = tuple(replace(claim, verdict="holds", kind="holds") for claim in result.claims)
    assert text.discrepancies(replace(result, claims=claims)) == []


def test_what_was_not_measured_is_counted_apart(result, partly):
    assert text.tally([partly]) == "1 of 1 claims hold; 1 claim not measured: data missing"
    assert text.tally([result, partly, partly]).endswith("; 2 claims not measured: data missing")
    assert text.score(partly) == "1 of 1 hold; 1 not measured: data missing"


def test_without_data_nothing_holds(lacking):
    assert text.tally([lacking]) == "no claims to check; 1 claim not measured: data missing"
    assert text.score(lacking) == "1 not measured: data missing"


def test_a_row_without_data_says_so_and_is_no_doubt(partly):
    found = verdict(partly, "drugs")
    assert (found.text, found.mark, found.passes) == ("not measured: data missing", "○", True)
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
