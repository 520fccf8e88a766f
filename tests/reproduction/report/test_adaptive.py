import pytest
from matplotlib.figure import Figure

from reproduction.report import adaptive
from reproduction.studies import adaptive as study
from reproduction.studies.runner import Scale


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


def test_no_name_runs_over_the_numbers_of_the_axis(pictures):
    figure = Figure(figsize=pictures[1].size, layout="constrained")
    axes = figure.subplots()
    pictures[1].paint(axes)
    figure.draw_without_rendering()
    room = axes.get_window_extent()
    names = [text.get_window_extent() for text in axes.texts]
    assert all(room.x0 < name.x0 and name.x1 < room.x1 for name in names)
