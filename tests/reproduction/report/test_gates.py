from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")

from reproduction.claims import check
from reproduction.report import gates
from reproduction.result import Result
from reproduction.studies import gates as study


@pytest.fixture(scope="module")
def result():
    """All rows, as if every gate recalled a half before training and all after it."""
    rows = tuple(study.row(case, [(0.5, 1.0, 64.0)] * 3) for case in study.TRAININGS)
    return Result("gates", "", "", (), rows, {}, (0, 1, 2), claims=check("gates", rows))


def test_the_figure_has_a_title_and_names_every_gate(result):
    picture = gates.pictures(result)[0]
    words = " ".join(ElementTree.fromstring(picture.inline()).itertext())
    shown = [case for case in study.TRAININGS if case.table in gates.SHOWN]
    assert picture.title in words
    assert all(case.label in words for case in shown)


def test_a_row_that_has_a_number_of_the_paper_is_not_marked_as_added(result):
    claimed = {row.label for row in result.rows if result.claims_of(row)}
    added = {row.label for row in result.rows if row.role == "added"}
    assert not claimed & added
