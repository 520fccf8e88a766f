import pytest

from distinctkv import studies
from distinctkv.studies.study import FULL, QUICK, Scale


@pytest.mark.parametrize("part", [0.0, -0.5, 1.5])
def test_a_scale_is_a_part_of_the_full_size(part):
    with pytest.raises(ValueError, match="a part in"):
        Scale("odd", part)


def test_the_smallest_scale_still_runs_something():
    assert Scale("tiny", 1e-9).of(300) == 1


@pytest.mark.parametrize("name", studies.NAMES)
def test_settings_tell_the_scales_apart(name):
    study = studies.load(name)
    assert study.settings(QUICK) != study.settings(FULL)


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no study 'recal'; there are recall"):
        studies.load("recal")
