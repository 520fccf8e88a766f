"""A small result in the shape of study ``recall``, made by hand."""

from dataclasses import replace

import pytest

from reproduction.claims import judge, mark_unmeasured
from reproduction.result import Measure, Result, Row, Series


def row(name, label, recall, slots, role):
    measures = {
        "recall": Measure(recall, 0.01, 4),
        "slots": Measure(slots, 0.0, 4),
        "bytes": Measure(192 * slots, 0.0, 4),
    }
    return Row(name, label, measures, f"setting of {label}", role)


@pytest.fixture
def make_result():
    def make(label="Ours", claimed=1.0, **wording):
        rows = (
            row("superposition", "Floor", 0.8, 32.0, "paper"),
            row("h2o", "Heavy [bold]", 0.9, 64.0, "paper"),
            row("redundancy", "Extra", 0.99, 64.0, "added"),
            row("dp", label, 1.0, 64.0, "cache"),
        )
        measured = rows[3].measures["recall"]
        wording = {"paper": claimed, "tolerance": 0.05, **wording}
        return Result(
            study="recall",
            title="A toy table",
            question="Which remembers?",
            findings=("The `cache` remembers.", "A note: -0.5 is **little**."),
            rows=rows,
            settings={"scale": "tiny", "n_items": 64},
            seeds=(0, 1, 2, 3),
            series=tuple(
                Series(r.name, r.label, (0.0, 1.0), (r.measures["recall"].mean, 0.85)) for r in rows
            ),
            claims=(judge("recall.table.dp.recall", measured, wording),),
            versions={"distinctkv": "0"},
            seconds=1.0,
        )

    return make


@pytest.fixture
def result(make_result):
    return make_result()


@pytest.fixture
def partly(result):
    """The same, with a row more that wants for data."""
    row = Row("drugs", "Drugs", {}, "tau .5", "paper", missing="mimic")
    claim = mark_unmeasured("recall.table.drugs.recall", {"paper": 0.99, "tolerance": 0.005})
    rows, claims = (row, *result.rows), (*result.claims, claim)
    return replace(result, rows=rows, claims=claims, missing=("mimic",))


@pytest.fixture
def lacking(partly):
    """A study that could not be measured at all."""
    nothing = {"rows": (), "series": (), "findings": (), "claims": partly.claims[-1:]}
    return replace(partly, missing=("mimic", "synpuf"), **nothing)
