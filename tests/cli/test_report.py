"""The page about a log: the newest first, safe, and one file."""

import re

import pytest

from distinctkv.cli import report
from distinctkv.logs import LogParser
from distinctkv.logs.job import Job


@pytest.fixture
def page(tmp_path):
    """The page about some text."""

    def make(text):
        path = tmp_path / "app.log"
        path.write_text(text)
        job = Job([str(path)], LogParser(), detect_header=True)
        for batch in job:
            job.parse(batch)
        return report.render(job)

    return make


def test_the_newest_template_comes_first(page):
    text = page("door 1 opened\ndoor 2 opened\nkey lost\n")
    assert text.index("key lost") < text.index("door &lt;*&gt; opened")
    assert "line 3" in text
    assert "2 templates in 3 lines" in text


def test_a_line_cannot_speak_to_the_browser(page):
    text = page("<script>alert(1)</script> $name \0 \x1b[2J\n")
    assert text.count("<script") == 1
    assert "&lt;script&gt;" in text
    assert "$name" in text
    assert "\\x00" in text
    assert "\x1b" not in text


def test_the_page_loads_nothing(page):
    text = page("door 1 opened\n")
    assert "default-src 'none'" in text
    assert set(re.findall(r"(?:src|href)=.(\w+:)?", text)) == {"data:"}


@pytest.mark.parametrize("text", ["", "up\n"])
def test_a_short_log_has_a_page(page, text):
    assert f"{text.count('up')} templates" in page(text)


def test_times_make_the_axis(page):
    text = page(
        "2024-05-01 10:00:00 door 1 opened\n2024-05-01 10:00:01 door 2 opened\n" * 9
        + "2024-05-01 11:00:00 key lost\n2024-05-01 13:00:00 door 3 opened\n"
    )
    assert "<span>2024-05-01 10:00:00</span>" in text
    assert "<span>2024-05-01 13:00:00</span>" in text
    assert "<rect x='33.33' y='2' width='1.00'" in text


@pytest.mark.parametrize(
    "text", ["Jun  9 06:06:20", "081109 203615", "01/May/2024:10:00:00 +0000", "1718000000.5",
             "Sun Dec 04 04:47:44 2005", "2015/07/29 17:41:41", "2024-05-01T10:00:00.123Z"]
)  # fmt: skip
def test_common_times_can_be_read(text):
    assert report.parse_time(text) is not None


def test_old_templates_are_left_out_of_a_long_page(page, monkeypatch):
    monkeypatch.setattr(report, "ROWS", 2)
    text = page("a\nb b\nc c c\nd d d d\ne e e e e\n")
    assert "3 older templates" in text
    assert "b b" not in text
