import pytest

from reproduction.report import domains
from reproduction.studies import domains as study
from reproduction.studies.runner import QUICK
from tests.reproduction.studies.tails import streams


@pytest.fixture(scope="module")
def draw(seed, tmp_path_factory):
    def made(*present):
        with streams(tmp_path_factory.mktemp("data"), *present):
            return domains.pictures(study.run((seed, seed + 1), QUICK))

    return made


def test_streams_that_are_here_are_drawn_and_the_others_are_not(draw):
    pictures = draw("mimic")
    assert len(pictures) == 2
    assert all("MIMIC-IV demo, drugs" in picture.inline() for picture in pictures)
    assert not any("MovieLens" in picture.inline() for picture in pictures)
    assert "MovieLens" not in pictures[0].alt


def test_the_words_have_the_numbers(draw):
    assert "900 events, 150 distinct" in draw("mimic")[0].alt


def test_logs_alone_have_no_figure(draw):
    assert draw("loghub/HDFS") == ()
