from dataclasses import replace

import pytest

from reproduction.claims import claims_for
from reproduction.report import text
from reproduction.result import Measure
from reproduction.studies import NAMES


def test_a_study_is_scored_by_its_verdicts(result, make_result, partly, lacking):
    assert text.score(result) == "1 holds"
    assert text.score(make_result(claimed=0.5)) == "1 differs"
    assert text.score(partly) == "1 holds, 1 not measured"
    assert text.score(lacking) == "1 not measured"
    assert text.score(replace(result, claims=())) == "the paper has no numbers for it"


def test_claims_that_could_not_fail_are_not_counted(result, make_result):
    sized = make_result(kind="by construction")
    assert text.score(sized) == "no independent claim; 1 of other kinds"
    lines = text.tally_lines([result, sized])
    assert lines[0].startswith("1 independent claim: 1 holds")
    assert lines[-1] == "Judged and not counted: 1 set by construction."


def test_the_tally_says_how_many_tolerances_are_ours(result, make_result):
    ours = result.claims[0].source == "ours"
    assert ours == any("ours, not the paper" in line for line in text.tally_lines([result]))
    counted = replace(result, claims=(*result.claims, replace(result.claims[0], source="ours")))
    found = text.tally_lines([counted])
    assert (
        found[1]
        == f"{1 + ours} of these 2 tolerances {'are' if ours else 'is'} ours, not the paper's."
    )


def test_a_remark_says_the_kind_the_reason_and_the_note(make_result):
    def remark(**wording):
        return text.remark(make_result(**wording).claims[0])

    assert remark() == ""
    assert remark(kind="searched", note="tau searched for it") == "tau searched for it"
    assert remark(kind="repeat", note="at a tau") == "repeats another claim; at a tau"
    assert remark(claimed=0.5, explanation="their machine") == "their machine"
    assert remark(explanation="their machine") == ""  # it holds


def test_a_limit_of_the_paper_has_its_sign(make_result):
    assert text.claimed(make_result(claimed=0.99, bound="at least").claims[0]) == "≥ 0.99"
    assert text.claimed(make_result(claimed=0.99, bound="at most").claims[0]) == "≤ 0.99"
    assert text.claimed(make_result(claimed=0.99).claims[0]) == "0.99"


LINE = (
    "recall.table.dp.recall\nRecall is {recall.table.dp.recall:.2f}\nhere. [Table](#study-recall)"
)


@pytest.mark.parametrize(
    ("claimed", "verdict"), [(1.0, "holds"), (0.5, "differs"), (0.944, "inconclusive")]
)
def test_a_line_of_the_summary_has_the_verdict_of_its_claim(make_result, claimed, verdict):
    found = text.summary([make_result(claimed=claimed)], LINE)
    assert found == [(verdict, "Recall is 1.00 here. [Table](#study-recall)")]


def test_the_worst_verdict_of_a_line_stands_for_it(result, make_result):
    other = replace(make_result(claimed=0.5).claims[0], id="recall.table.h2o.recall")
    both = replace(result, claims=(*result.claims, other))
    line = LINE.replace("\n", ", recall.table.h2o.recall\n", 1)
    assert text.summary([both], line)[0][0] == "differs"


def test_a_line_without_its_study_is_left_out_and_without_its_data_says_so(result, lacking):
    two = f"{LINE}\n\ntau.table.dp.recall\nNothing."
    assert len(text.summary([result], two)) == 1
    assert text.summary([lacking], LINE) == [
        ("not measured", "[A toy table](#study-recall): data missing.")
    ]


def test_every_claim_that_the_summary_names_is_in_claims_toml():
    template = text.SUMMARY.read_text(encoding="utf-8")
    parts = template.strip().split("\n\n")
    assert 5 <= len(parts) <= 8
    for part in parts:
        for name in part.partition("\n")[0].split(", "):
            study, table, row, measure = name.split(".", 3)
            assert measure in claims_for(study)[table][row]


def test_the_way_out_is_named(result, lacking):
    said = text.missing_notice(lacking)
    assert said.startswith(
        "Missing data: mimic, synpuf. Run python -m reproduction.data get NAME for each"
    )
    assert "DISTINCTKV_DATA" in said
    assert text.missing_notice(result) == ""


def test_seeds_that_vary_are_told(result):
    measures = {"recall": Measure(1.0, 0.0, 9)}
    assert text.seeds_behind([*result.rows, replace(result.rows[0], measures=measures)]) == (
        "4 to 9 seeds"
    )


@pytest.mark.parametrize("study", NAMES)
def test_no_digit_of_the_paper_is_lost(study):
    rows = [row for table in claims_for(study).values() for row in table.values()]
    numbers = [wording["paper"] for row in rows for wording in row.values()]
    assert [float(text.printed(number).replace(",", "")) for number in numbers] == numbers


@pytest.mark.parametrize("number", [1e-5, 1.5e-7, 0.005, 12345.67, 1234567.5, 1234567])
def test_no_digit_is_lost_however_large_or_small_a_number(number):
    assert float(text.printed(number).replace(",", "")) == number
    assert "e" not in text.printed(number)
