import re
from dataclasses import replace
from functools import partial

import pytest

from reproduction.data import RecallTask
from reproduction.report import page, stress
from reproduction.studies import stress as study
from reproduction.studies.runner import Scale

FEW = partial(RecallTask(n_items=8, repeats=2).draw, n_queries=8)


@pytest.fixture(scope="module")
def strained(seed):
    few = (
        replace(s, streams=dict.fromkeys(s.streams, FEW)) if s.heavy else s
        for s in study.CONDITIONS
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "CONDITIONS", tuple(few))
        return study.run((seed, seed + 1), Scale("tiny", 0.01))


@pytest.fixture(scope="module")
def pictures(strained):
    return stress.pictures(strained)


def test_every_strain_is_in_the_first_figure(pictures, strained):
    drawn = pictures[0].inline()
    assert all(row.label in drawn for row in strained.tables["choice"])
    assert all(name in drawn for name in ("plain", "safe", "chosen"))


def test_every_figure_says_in_words_what_it_shows(pictures):
    assert "alike: cosine 0.8: plain recall" in pictures[0].alt
    assert "centred: from 1.000 to 1.000" in pictures[1].alt
    assert "noise 0.5: from 4.000" in pictures[2].alt
    assert "ema key, pace .3: from 1.000" in pictures[3].alt
    assert "2 of 5 new, last value: recall 1.000" in pictures[4].alt


def test_colours_follow_the_page(pictures):
    for picture in pictures:
        assert not re.search(r"(fill|stroke): #(?!000000|ffffff)", picture.inline())


def test_a_study_without_claims_has_its_tables_and_no_verdicts(strained):
    text = page.render([strained])
    assert all(heading in text for heading in study.HEADINGS.values())
    assert "no claims to check" in text
    assert 'scope="rowgroup"' not in text
