from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

from reproduction.report import figures
from reproduction.report.picture import spaced


def test_the_story_is_a_whole_svg_on_white(result, tmp_path):
    assert figures.write_story([result], tmp_path / "story.svg")
    text = (tmp_path / "story.svg").read_text()
    ElementTree.fromstring(text)
    assert "fill: #ffffff" in text
    assert "var(--" not in text


def test_words_in_a_figure_stay_words(result, tmp_path):
    assert figures.write_story([result], tmp_path / "story.svg")
    text = (tmp_path / "story.svg").read_text()
    assert all(row.label in text for row in result.rows)


def test_a_state_is_not_drawn_by_its_slots(result, tmp_path):
    rows = (replace(result.rows[2], name="fourier", label="A state"), *result.rows)
    assert figures.write_story([replace(result, rows=rows)], tmp_path / "story.svg")
    assert "A state" not in (tmp_path / "story.svg").read_text()


def test_a_dollar_in_a_name_is_a_dollar(make_result):
    drawn = figures.pictures(make_result(label="$x^2$"))[0].inline()
    assert "$x^2$" in drawn


def test_a_study_that_has_no_figures_has_none(result):
    assert figures.pictures(replace(result, study="other")) == ()


def test_names_that_would_meet_are_moved_apart():
    placed = spaced([1.0, 0.99, 0.98, 0.5], gap=0.1)
    assert all(a - b >= 0.1 - 1e-12 for a, b in pairwise(placed))
    assert placed[0] == 1.0
    assert placed[-1] == 0.5


def test_a_study_without_data_has_no_figure_and_the_next_one_stands_in(result, lacking, tmp_path):
    assert figures.pictures(lacking) == ()
    assert not figures.write_story([lacking], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    assert figures.write_story([lacking, result], tmp_path / "story.svg")


def test_a_figure_says_what_it_is_above_it(result, tmp_path):
    drawn = figures.pictures(result)
    assert all(picture.title and picture.title in picture.inline() for picture in drawn)
    assert figures.write_story([result], tmp_path / "story.svg")
    assert drawn[0].title in (tmp_path / "story.svg").read_text()
