"""The table of journeys in docs/architecture.md is what the code does."""

import pytest

from benchmarks import journeys

pytest.importorskip("torch")


def test_the_page_lists_the_files_of_each_journey():
    page = journeys.PAGE.read_text(encoding="utf-8")
    listed = page.split(journeys.BEGIN)[1].split(journeys.END)[0].strip()
    assert listed == journeys.table(), "run python -m benchmarks.journeys --write"


def test_no_journey_has_more_files_than_its_limit():
    counts = {name: (len(files), most) for name, files, most in journeys.files_of_all()}
    assert {name: pair for name, pair in counts.items() if pair[0] > pair[1]} == {}
