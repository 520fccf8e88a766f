import pytest

from reproduction.report import process
from reproduction.studies import process as study
from reproduction.studies.runner import Scale


@pytest.fixture(scope="module")
def pictures(seed):
    return process.pictures(study.run((seed, seed + 1), Scale("tiny", 0.01)))


def test_the_process_is_drawn_beside_its_law(pictures):
    drawn = pictures[0].inline()
    assert "alpha 20" in drawn
    assert "α ln N" in drawn


def test_the_rule_is_told_in_words(pictures):
    assert "64 types after 10,000 (N = 10,000, tau 0.3): 64.0 slots for 64.0" in pictures[1].alt


def test_every_stream_is_named_with_its_last_count(pictures):
    assert "64 Zipf types: 64.0" in pictures[1].inline()
