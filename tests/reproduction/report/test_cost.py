import re

import pytest

from reproduction.report import cost
from reproduction.studies import cost as study
from reproduction.studies.runner import Scale


def laps(order, _):
    """What a machine would measure on which a row takes as long as a row."""
    names = ("attention batch", "attention single", "append", "build", "attention bytes", "tokens")
    return [
        dict.fromkeys(names, float(size.n_items * repeats))
        | dict.fromkeys(("cache batch", "cache single", "call", "slots", "bytes"), size.n_items)
        for size in order.sizes
        for repeats in order.lengths
    ]


@pytest.fixture(scope="module")
def pictures(seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "time_in_subprocess", laps)
        return cost.pictures(study.run((seed, seed + 1), Scale("tiny", 0.01)))


def test_every_line_is_named(pictures):
    drawn = pictures[0].inline()
    for name in ("batch, 64 items", "batch, 256 items", "alone, 64 items", "alone, 256 items"):
        assert name in drawn


def test_the_words_tell_where_a_line_begins_and_ends(pictures):
    assert "64 items, speed-up: from 4.000 to 256" in pictures[0].alt
    assert "256 items, cache: from 4.000 to 4.000" in pictures[1].alt


def test_colours_follow_the_page(pictures):
    for picture in pictures:
        assert not re.search(r"(fill|stroke): #(?!000000|ffffff)", picture.inline())
