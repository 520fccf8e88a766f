import pytest

from distinctkv.report import adaptive
from distinctkv.studies import adaptive as study
from distinctkv.studies.study import Scale


@pytest.fixture(scope="module")
def pictures(seed):
    return adaptive.pictures(study.run((seed, seed + 1), Scale("tiny", 0.1)))


def test_the_trace_names_every_line(pictures):
    drawn = pictures[0].inline()
    for name in ("Adaptive (ours)", "Its budget", "Fixed budget 18", "Slots expire, 40 idle"):
        assert name in drawn
    assert "No budget: 14" in drawn


def test_both_ways_of_counting_are_told_in_words(pictures):
    assert "slots at phase ends 16.5, per token 17.4" in pictures[1].alt


def test_every_gain_is_drawn_and_told(pictures):
    assert "Gain on fixed, paper's stream: " in pictures[2].alt
    assert "Gain on 18, steady demand" in pictures[2].inline()
