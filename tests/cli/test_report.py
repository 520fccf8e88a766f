"""The page about a log: whole, safe, and true to the parser."""

import re

import pytest

from distinctkv.cli import report as watching
from distinctkv.logs import LogParser
from distinctkv.logs.history import Sample
from distinctkv.logs.job import Job
from distinctkv.logs.novelties import novelties
from distinctkv.policy import Concentration


@pytest.fixture
def page(tmp_path):
    """The page about some text."""

    def made(text, **budget):
        path = tmp_path / "app.log"
        path.write_text(text)
        job = Job([str(path)], LogParser(Concentration.fixed(0.3, **budget)))
        newest = [novelty for batch in job for novelty in novelties(job, batch)]
        return watching.render(job, newest)

    return made


def test_it_lists_templates_with_their_counts(page):
    text = page("door 1 opened\ndoor 2 opened\nkey lost\n")
    assert re.search(r'<td class="n">2</td>\s*<td class="n">66.7%</td>', text)
    assert "door &lt;*&gt; opened" in text
    assert "line 3" in text


def test_a_line_cannot_speak_to_the_browser(page):
    text = page("<script>alert(1)</script> \0 \x1b[2J\n")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\\x00" in text
    assert "\x1b" not in text


def test_a_log_without_lines_has_a_page(page):
    assert "0" in page("")


def test_a_budget_is_drawn(page):
    assert "budget" in re.sub(r"<dl>.*?</dl>", "", page("up\ndown\n", budget=5), flags=re.DOTALL)


def test_rare_templates_are_left_out_of_a_long_table(page, monkeypatch):
    monkeypatch.setattr(watching, "ROWS", 2)
    assert "3 rarer ones are not shown" in page("a\nb b\nc c c\nd d d d\ne e e e e\n")


def test_every_template_that_opened_is_in_the_timeline():
    rises = ((100, 7), (200, 9), (900, 30))
    samples = [Sample(lines, opened, 0, 0, None, 0.0) for lines, opened in rises]
    edges, counts = watching.bins(samples)
    assert (sum(counts), counts[5], counts[-1]) == (30, 7, 21)
    assert (edges[0], edges[-1]) == (0, 900)


def test_the_file_is_whole_or_not_there(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("before")
    monkeypatch.setattr(watching, "render", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watching.write(None, [], target)
    assert target.read_text() == "before"
