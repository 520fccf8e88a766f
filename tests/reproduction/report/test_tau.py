import pytest

from reproduction.report import tau
from reproduction.studies import tau as study
from reproduction.studies.runner import QUICK
from tests.reproduction.studies.tails import streams


@pytest.fixture(scope="module")
def pictures(seed, tmp_path_factory):
    with streams(tmp_path_factory.mktemp("data"), "mimic"):
        return tau.pictures(study.run((seed, seed + 1), QUICK))


def test_both_conventions_are_on_the_axes(pictures):
    for picture in pictures[1:]:
        drawn = picture.inline()
        assert "similarity at which a repeat merges" in drawn
        assert "tau, novelty above which a slot opens" in drawn


def test_streams_that_are_here_are_drawn_and_the_others_are_not(pictures):
    assert all("MIMIC-IV demo" in picture.inline() for picture in pictures)
    assert not any("MovieLens" in picture.inline() for picture in pictures)


def test_the_words_have_the_numbers(pictures):
    assert "Similarity 0.7, tau 0.3: 1.000 slots per distinct item" in pictures[1].alt
    assert "Noise 0.35" in pictures[0].alt
