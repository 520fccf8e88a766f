from dataclasses import replace

import pytest

pytest.importorskip("torch")

from reproduction.report import five_models
from reproduction.studies import five_models as study
from reproduction.studies.runner import QUICK


@pytest.fixture(scope="module")
def picture(seed):
    with pytest.MonkeyPatch.context() as patch:
        trainings = tuple(replace(one, steps=0) for one in study.TRAININGS)
        patch.setattr(study, "TRAININGS", trainings)
        patch.setattr(study, "TEST_BATCHES", 1)
        return five_models.pictures(study.run(range(seed, seed + 3), QUICK))[0]


def test_rows_are_named_with_their_bytes(picture):
    drawn = picture.inline()
    assert all(case.label in drawn for case in study.TRAININGS)
    assert drawn.count("131,072 bytes") == 4


def test_the_words_have_the_parameters(picture):
    assert "123,426 parameters" in picture.alt


def test_it_has_a_title(picture):
    assert picture.title
    assert picture.title in picture.inline()
