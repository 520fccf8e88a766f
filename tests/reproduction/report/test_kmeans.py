import pytest

from reproduction.report import figures
from reproduction.studies import kmeans
from reproduction.studies.runner import Scale


@pytest.fixture(scope="module")
def picture(seed):
    return figures.pictures(kmeans.run((seed, seed + 1), Scale("tiny", 0.02)))[0]


def test_every_line_has_its_name(picture):
    text = picture.inline()
    sweeps = (*kmeans.FITS, kmeans.MEAN, kmeans.CACHE)
    assert all(f">{sweep.label}<" in text for sweep in sweeps)


def test_the_figure_says_in_words_what_k_means_held(picture):
    assert "at its peak 256 slots" in picture.alt
