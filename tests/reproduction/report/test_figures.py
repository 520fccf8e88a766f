import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from reproduction.report import figures
from reproduction.report.plots import Axis, Curve, Dots, Lines, Mark, Picture, Points, spaced
from reproduction.studies import NAMES, runner
from tests.reproduction.studies.small_streams import streams


def test_every_study_has_one_figure_with_a_caption():
    assert {*figures.FIGURES} == {"story", *NAMES}
    assert all(caption for _, caption in figures.FIGURES.values())


def test_the_story_is_a_whole_svg_on_white(result, tmp_path):
    assert figures.write_story([result], tmp_path / "story.svg")
    text = (tmp_path / "story.svg").read_text()
    ElementTree.fromstring(text)
    assert "fill: #ffffff" in text
    assert "var(--" not in text
    assert "The cache (ours)" in text


def test_a_study_without_figure_or_data_has_none(result, lacking, tmp_path):
    assert figures.figure(replace(result, study="other")) is None
    assert figures.figure(lacking) is None
    assert figures.figure(replace(result, study="tau"), story=True) is None
    assert not figures.write_story([lacking], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    assert figures.write_story([lacking, result], tmp_path / "story.svg")


def test_our_colour_is_ours_alone():
    marks = [m for plot, _ in figures.FIGURES.values() for m in getattr(plot, "marks", ())]
    assert all(("(ours)" in m.label or "cache" in m.label) == (m.colour == "ours") for m in marks)


def test_colours_of_an_inline_figure_are_those_of_the_page(result):
    drawn = figures.figure(result).inline()
    assert "var(--ours)" in drawn
    assert not re.search(r"(fill|stroke): #(?!000000|ffffff)", drawn)


def test_a_figure_is_told_in_words_too(result):
    assert "The cache (ours): 1.000" in figures.figure(result).alt
    dots = Picture("x", Dots(figures.rows("table"), (Mark("recall"),), Axis("recall")), "", result)
    assert "Floor: recall 0.800 ± 0.010" in dots.alt


def test_series_that_a_run_does_not_have_are_left_out(result):
    found = figures.series("{}", "lfu LFU|dp Mine (ours)")(result)
    assert [(curve.label, curve.colour) for curve in found] == [("Mine (ours)", "ours")]


def test_rows_without_data_are_not_drawn(partly):
    assert "drugs" not in [row.name for row in figures.rows("table")(partly)]


def drawn(plot, result):
    return Picture("recall", plot, "", result).figure().axes[0]


@pytest.mark.parametrize("kind", [Lines, Points])
def test_labels_at_one_height_are_moved_apart(result, kind):
    curves = [Curve(name, "s1", (1,), (1,)) for name in "abc"] + [Curve("d", "ours", (1,), (0,))]
    axes = drawn(kind(lambda result: curves, Axis("x"), Axis("y")), result)
    heights = [text.xyann[1] if kind is Lines else text.xy[1] for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c", "d"]
    assert all(a - b > 0.04 for a, b in pairwise(heights))


def test_points_beyond_the_axis_are_left_out_and_the_label_stands_at_the_last_one_shown(result):
    curves = [Curve("a", "s1", (1, 2, 8), (1, 2, 3)), Curve("b", "s2", (9,), (1,))]
    axes = drawn(Lines(lambda result: curves, Axis("x", (0, 4)), Axis("y")), result)
    assert [(text.get_text(), text.xy[0]) for text in axes.texts] == [("a", pytest.approx(0.5))]


def test_axes_have_the_limits_and_ticks_asked_for(result):
    curve = Curve("a", "s1", (1, 100), (1, 2))
    axis = Axis("x", (1, 200), (1, 10, 1000), log=10)
    axes = drawn(Lines(lambda result: [curve], axis, Axis("y")), result)
    assert axes.get_xlim() == (1, 200)
    assert axes.get_xlabel() == "x (log scale)"


def test_marks_of_a_row_are_ringed_by_the_papers_number(result):
    plot = Dots(figures.rows("table"), (Mark("recall"),), Axis("recall"))
    rings = [line for line in drawn(plot, result).lines if line.get_markersize() == 11]
    assert [tuple(ring.get_xdata()) for ring in rings] == [(1.0,)]


def test_a_dollar_in_a_name_is_a_dollar(make_result):
    plot = Dots(figures.rows("table"), (Mark("recall"),), Axis("recall"))
    assert "$x^2$" in Picture("x", plot, "", make_result(label="$x^2$")).inline()


def test_names_that_would_meet_are_moved_apart():
    placed = spaced([1.0, 0.99, 0.98, 0.5], gap=0.1)
    assert all(a - b >= 0.1 - 1e-9 for a, b in pairwise(placed))
    assert (placed[1], placed[-1]) == (0.99, 0.5)


def test_the_report_imports_no_study():
    code = (
        "import sys; from reproduction.report import page, console\n"
        "print(*(name for name in sys.modules if name.startswith('reproduction.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.split()
    assert "reproduction.report.page" in names
    assert not [name for name in names if re.match(r"reproduction\.(studies|data|base)", name)]


FAST = ("recall", "domains", "process")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_the_figure_of_every_study_is_drawn_from_what_it_measures(name, tmp_path):
    with streams(tmp_path, "movielens", "mimic", "synpuf", "loghub/BGL", "loghub/HDFS"):
        result = runner.run_study(name, (0, 1), runner.SMOKE, tmp_path, runner.silent)
    picture = figures.figure(result)
    ElementTree.fromstring(picture.standalone())
    described = picture.alt.removeprefix(picture.caption).split("; ")
    assert len(described) >= 2
    assert isinstance(picture.plot, Dots) or len(described) <= 6
