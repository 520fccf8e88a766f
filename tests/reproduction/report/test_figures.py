import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from reproduction.report import figures
from reproduction.report.plots import TEXTS, Axis, Dots, Line, Lines, Mark, Picture, spaced
from reproduction.result import Series
from reproduction.studies import NAMES, load
from reproduction.studies.runner import Scale
from tests.reproduction.studies.small_streams import streams


def test_every_figure_has_a_study_a_title_and_a_caption():
    assert [*figures.PLOTS] == [*TEXTS]
    assert {name.partition("-")[0] for name in figures.PLOTS} == {*NAMES}
    assert all(text["title"] and text["caption"] for text in TEXTS.values())


def test_the_story_is_a_whole_svg_on_white(result, tmp_path):
    assert figures.write_story([result], tmp_path / "story.svg")
    text = (tmp_path / "story.svg").read_text()
    ElementTree.fromstring(text)
    assert "fill: #ffffff" in text
    assert "var(--" not in text
    assert all(row.label in text for row in result.rows)
    assert figures.pictures(result)[0].title in text


def test_a_state_is_not_drawn_by_its_slots(result, tmp_path):
    rows = (replace(result.rows[2], name="fourier", label="A state"), *result.rows)
    assert figures.write_story([replace(result, rows=rows)], tmp_path / "story.svg")
    assert "A state" not in (tmp_path / "story.svg").read_text()


def test_a_dollar_in_a_name_is_a_dollar(make_result):
    assert "$x^2$" in figures.pictures(make_result(label="$x^2$"))[0].inline()


def test_colours_of_an_inline_figure_are_those_of_the_page(result):
    drawn = figures.pictures(result)[0].inline()
    assert "var(--cache)" in drawn
    assert not re.search(r"(fill|stroke): #(?!000000|ffffff)", drawn)


def test_a_figure_is_told_in_words_too(result):
    points, seeds, size = figures.pictures(result)
    assert "Ours: 1.000" in points.alt
    assert "Floor: recall 0.800 ± 0.010" in seeds.alt
    assert "Floor: bytes 6,144" in size.alt


def test_a_study_without_figures_or_data_has_none_and_the_next_one_stands_in(
    result, lacking, tmp_path
):
    assert figures.pictures(replace(result, study="other")) == ()
    assert figures.pictures(lacking) == ()
    assert not figures.write_story([lacking], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    assert figures.write_story([lacking, result], tmp_path / "story.svg")


def test_a_series_may_be_missing_only_with_its_data(result, partly):
    with pytest.raises(ValueError, match=r"no series lfu\.slots"):
        figures.lines("{}.slots", "paper:lfu")(result)
    assert figures.lines("{}.slots", "paper:lfu")(partly) == []


def test_rows_without_data_are_not_drawn(partly):
    assert "drugs" not in [row.name for row in figures.rows("table")(partly)]


def drawn(plot, result):
    return Picture("recall-slots", plot, result).figure().axes[0]


def test_names_at_one_height_are_moved_apart(result):
    lines = [Line(Series(name, name, (0, 1), (0, 1)), "paper") for name in "abc"]
    axes = drawn(Lines(lambda result: lines, Axis("x"), Axis("y")), result)
    heights = sorted(text.xy[1] for text in axes.texts)
    assert len(heights) == 3
    assert all(b - a > 0.04 for a, b in pairwise(heights))


def test_axes_have_the_limits_and_ticks_asked_for(result):
    line = Line(Series("a", "a", (1, 100), (1, 2)), "paper")
    axis = Axis("x", (1, 200), (1, 10, 1000), log=10)
    axes = drawn(Lines(lambda result: [line], axis, Axis("y")), result)
    assert axes.get_xlim() == (1, 200)
    assert axes.get_xlabel() == "x (log scale)"


def test_marks_of_a_row_are_ringed_by_the_papers_number(result):
    plot = Dots(figures.rows("table"), (Mark("recall"),), Axis("recall"))
    rings = [line for line in drawn(plot, result).lines if line.get_markersize() == 11]
    assert [tuple(ring.get_xdata()) for ring in rings] == [(1.0,)]


def test_names_that_would_meet_are_moved_apart():
    placed = spaced([1.0, 0.99, 0.98, 0.5], gap=0.1)
    assert all(a - b >= 0.1 - 1e-12 for a, b in pairwise(placed))
    assert (placed[0], placed[-1]) == (1.0, 0.5)


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
def test_the_figures_of_every_study_are_drawn_from_what_it_measures(name, tmp_path):
    with streams(tmp_path, "movielens", "mimic", "synpuf", "loghub/BGL", "loghub/HDFS"):
        result = load(name).run((0, 1), Scale("tiny", 0.01), lambda done, total: None)
    found = figures.pictures(result)
    assert [picture.name for picture in found] == [
        plot for plot in figures.PLOTS if plot.startswith(f"{name}-")
    ]
    for picture in found:
        ElementTree.fromstring(picture.standalone())
        assert len(picture.alt) > len(picture.title) + 5
