import pytest

pytest.importorskip("torch")

from reproduction.report import hybrid
from reproduction.studies import hybrid as study
from reproduction.studies.runner import QUICK


@pytest.fixture(scope="module")
def pictures(seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "STEPS", 1)
        patch.setattr(study, "TEST_STREAMS", 8)
        return hybrid.pictures(study.run(range(seed, seed + 3), QUICK))


def test_rows_are_named_with_their_bytes(pictures):
    drawn = pictures[0].inline()
    assert all(case.label in drawn for case in study.METHODS)
    assert "11,808 bytes" in drawn


def test_controls_are_in_a_figure_of_their_own(pictures):
    drawn = pictures[1].inline()
    assert all(case.label in drawn for case in study.CONTROLS)
    assert "bytes" not in drawn


def test_the_words_have_the_numbers(pictures):
    assert "192 bytes" in pictures[0].alt
    assert "A guess: 0." in pictures[1].alt


def test_each_has_a_title(pictures):
    assert all(picture.title and picture.title in picture.inline() for picture in pictures)
