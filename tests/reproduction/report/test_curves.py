import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from reproduction.report import svg
from reproduction.report.curves import Stroke, draw, draw_faintly, key, name_ends
from reproduction.result import Series


@pytest.fixture
def axes():
    return Figure().subplots()


@pytest.fixture
def lines():
    low = Series("low", "Low", (1.0, 2.0), (0.1, 0.2), (0.0, 0.1))
    return low, Series("high", "High", (1.0, 2.0), (0.1, 0.21), (0.0, 0.1))


def test_the_key_names_the_last_line_first(axes, lines):
    draw(axes, zip(lines, (Stroke("paper", "o-"), Stroke("cache", "o-")), strict=True))
    key(axes, (0.0, 0.0))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["High", "Low"]


def test_a_name_in_the_key_has_the_colour_of_its_line(axes, lines):
    draw(axes, [(lines[0], Stroke("added", "o-"))])
    key(axes, (0.0, 0.0))
    name = axes.get_legend().get_texts()[0]
    assert to_hex(name.get_color()) == svg.COLOURS["added"]


def test_the_cache_lies_below_its_rivals(axes, lines):
    draw(axes, zip(lines, (Stroke("paper", "o-"), Stroke("cache", "o-")), strict=True))
    rival, cache = (line for line in axes.lines if line.get_marker() == "o")
    assert cache.get_zorder() < rival.get_zorder()


def test_faint_lines_share_one_name_in_the_key(axes, lines):
    draw_faintly(axes, lines, "others")
    assert axes.get_legend_handles_labels()[1] == ["others"]


def test_names_at_the_ends_keep_apart(axes, lines):
    name_ends(axes, lines, gap=0.05)
    high, low = (text.xy[1] for text in axes.texts)
    assert high - low == pytest.approx(0.05)
