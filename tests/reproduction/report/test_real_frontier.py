import pytest

from reproduction.report import real_frontier
from tests.reproduction.studies.tails import small_frontier


@pytest.fixture(scope="module")
def pictures(seed):
    return real_frontier.pictures(small_frontier(seed))


def test_every_memory_has_its_line(pictures):
    drawn = pictures[0].inline()
    for label in ("Distinct items (ours)", "Redundancy eviction", "H2O, tuned", "StreamingLLM"):
        assert label in drawn


def test_popular_and_rare_are_drawn_for_every_row(pictures):
    drawn = pictures[1].inline()
    assert "SnapKV, token by token" in drawn
    assert "Distinct items, tau .5" in drawn


def test_the_words_have_the_numbers(pictures):
    assert "Full attention: recall 1.000 from 2,000 slots" in pictures[0].alt
