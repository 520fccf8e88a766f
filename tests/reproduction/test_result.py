import json
from dataclasses import replace

import pytest

from reproduction.result import Claim, Measure, Result, Row, Series, measures_of


@pytest.fixture
def result():
    return Result(
        study="toy",
        title="A toy",
        question="Does it run?",
        findings=("It runs.",),
        rows=(Row("dp", "Ours", {"recall": Measure(1 / 3, 0.1, 4)}, "tau .3", "cache"),),
        settings={"scale": "tiny", "noise": 0.1},
        seeds=(0, 1),
        series=(Series("dp", "Ours", (0.0, 1.0), (0.25, 0.5), (0.1, 0.0)),),
        claims=(
            Claim(
                *("toy.table.dp.recall", 0.3, 1 / 3, 0.1, 4, 0.05, 0.1, "spread"),
                *("holds", "measured"),
            ),
        ),
        versions={"distinctkv": "0"},
        seconds=1.5,
    )


def test_a_result_survives_the_round_trip(result):
    assert Result.from_json(result.to_json()) == result


def test_the_file_has_the_names_others_read(result):
    raw = json.loads(result.to_json())
    assert {"rows", "series", "settings", "seeds", "versions", "seconds", "claims"} <= set(raw)
    assert {
        "id",
        "paper",
        "measured",
        "spread",
        "n",
        "margin",
        "tolerance",
        "source",
        "verdict",
        "kind",
        "bound",
        "note",
        "explanation",
    } == set(raw["claims"][0])


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"rows": []}', '{"rows": [1]}'])
def test_what_is_not_a_result_is_refused(text):
    with pytest.raises(ValueError, match="not a result"):
        Result.from_json(text)


def test_a_field_from_another_version_is_refused(result):
    raw = json.loads(result.to_json()) | {"mood": "good"}
    with pytest.raises(ValueError, match="run the study again"):
        Result.from_json(json.dumps(raw))


def test_not_a_number_is_never_written(result):
    broken = Row("dp", "Ours", {"recall": Measure(float("nan"), 0.0, 2)}, "", "cache")
    with pytest.raises(ValueError, match="JSON compliant"):
        Result("toy", "", "", (), (broken,), {}, ()).to_json()


def test_one_seed_has_no_spread():
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        Measure.of([0.5])


def test_a_claim_knows_its_row_and_measure(result):
    claim = result.claims[0]
    assert (claim.row, claim.measure) == ("dp", "recall")
    assert result.claims_of(result.rows[0]) == (claim,)
    assert result.claims_of(replace(result.rows[0], name="h2o")) == ()


def test_rows_stand_in_their_tables_in_order(result):
    row = result.rows[0]
    rows = (row, replace(row, table="more"), replace(row, name="h2o"))
    tables = replace(result, rows=rows).tables
    assert {name: [row.name for row in rows] for name, rows in tables.items()} == {
        "table": ["dp", "h2o"],
        "more": ["dp"],
    }


def test_what_was_not_measured_survives_the_round_trip(result):
    row = Row("dp", "Ours", {}, "", "cache", missing="mimic")
    claim = replace(result.claims[0], measured=None, spread=None, verdict="not measured")
    lacking = replace(result, rows=(row,), claims=(claim,), missing=("mimic",))
    assert Result.from_json(lacking.to_json()) == lacking
    assert json.loads(lacking.to_json())["claims"][0]["measured"] is None


@pytest.mark.parametrize(
    ("measures", "missing"), [({}, ""), ({"recall": Measure(1.0, 0.0, 2)}, "mimic")]
)
def test_a_row_is_either_measured_or_missing(measures, missing):
    with pytest.raises(ValueError, match="row 'dp' needs measures, or the name"):
        Row("dp", "Ours", measures, "", "cache", missing=missing)


def test_columns_are_those_of_the_first_row_that_was_measured(result):
    lacking = Row("a", "Absent", {}, "", "paper", missing="mimic")
    assert measures_of((lacking, *result.rows)) == ("recall",)
    assert measures_of((lacking,)) == ()
