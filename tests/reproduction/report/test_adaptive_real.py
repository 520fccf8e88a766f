import pytest

from reproduction.report import adaptive_real
from reproduction.studies import adaptive_real as study
from reproduction.studies.runner import Scale
from tests.reproduction.studies.toys import two_streams

TINY = Scale("tiny", 0.1)


@pytest.fixture(scope="module")
def pictures(seed, tmp_path_factory):
    with two_streams(tmp_path_factory.mktemp("data"), "movielens", "bgl"):
        return adaptive_real.pictures(study.run((seed, seed + 1), TINY))


def test_every_budget_is_named_over_decays(pictures):
    drawn = pictures[0].inline()
    for name in ("Fixed budget 18", "Fixed budget 45", "Adaptive (ours)", "Slots expire, 150 idle"):
        assert name in drawn
    assert "For ever: fixed " in pictures[0].alt


def test_every_gain_is_told(pictures):
    for name in ("Gain on 18, BGL: ", "Gain on 813, MovieLens: ", "Gain on expiry, BGL: "):
        assert name in pictures[1].alt
    assert "Gain on fixed, BGL" in pictures[1].inline()


def test_slots_are_drawn_along_both_streams(pictures):
    assert [picture.name for picture in pictures[2:]] == [
        "adaptive_real-bgl",
        "adaptive_real-movielens",
    ]
    assert "Fixed budget 813" in pictures[3].inline()
    assert "Fixed budget 18 at most 18.0" in pictures[2].alt


def test_a_stream_that_is_not_here_is_not_drawn(seed, tmp_path):
    with two_streams(tmp_path, "movielens"):
        drawn = adaptive_real.pictures(study.run((seed, seed + 1), TINY))
    assert [picture.name for picture in drawn] == ["adaptive_real-gain", "adaptive_real-movielens"]
    assert "BGL" not in drawn[0].inline()


def test_a_line_crosses_a_level_where_it_does():
    assert adaptive_real.crossings([1, 10, 100], [1.0, 0.8, 0.6], 0.9) == pytest.approx([10**0.5])
    assert adaptive_real.crossings([1, 10], [1.0, 0.8], 0.7) == []
