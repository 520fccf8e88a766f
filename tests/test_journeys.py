"""The table of journeys in docs/architecture.md is what the code does."""

import pytest

from benchmarks import journeys

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def counted():
    """Name, files and limit of each journey."""
    return journeys.files_of_all()


def test_the_page_lists_the_files_of_each_journey(counted):
    page = journeys.PAGE.read_text(encoding="utf-8")
    listed = page.split(journeys.BEGIN)[1].split(journeys.END)[0].strip()
    assert listed == journeys.table(counted), "run python -m benchmarks.journeys --write"


def longer_than_they_may_be(counted):
    counts = {name: (len(files), most) for name, files, most in counted}
    return {name: pair for name, pair in counts.items() if pair[0] > pair[1]}


def test_no_journey_has_more_files_than_its_limit(counted):
    assert longer_than_they_may_be(counted) == {}


@pytest.mark.gpu
def test_no_journey_on_a_gpu_has_more_files_than_its_limit():
    assert longer_than_they_may_be(journeys.files_of_all(journeys.ON_CUDA)) == {}
