import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from reproduction.report import page

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Tags with their attributes, and whether each was closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture
def text(result):
    return page.render([result])


def test_every_tag_is_closed_in_order(text):
    assert Outline(text).open == []


def test_a_script_in_a_name_is_shown_and_not_run(make_result):
    text = page.render([make_result(label="<script>alert(1)</script>")])
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_the_page_asks_for_nothing(text):
    outline = Outline(text)
    links = [
        value
        for _, attrs in outline.tags
        for name, value in attrs.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not outline.all("script")


def test_every_figure_says_in_words_what_it_shows(text):
    labels = [attrs["aria-label"] for attrs in Outline(text).all("div") if "aria-label" in attrs]
    assert sum("Floor: " in label for label in labels) == 3
    assert len(Outline(text).all("figcaption")) == len(Outline(text).all("svg")) == 3


def test_every_table_has_a_caption_and_headed_cells(text):
    outline = Outline(text)
    assert len(outline.all("caption")) == len(outline.all("table")) == 2
    assert all("scope" in attrs for attrs in outline.all("th"))


def test_no_id_is_given_twice(text):
    ids = [attrs["id"] for _, attrs in Outline(text).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_a_reference_inside_a_figure_finds_its_target(text):
    ids = {attrs["id"] for _, attrs in Outline(text).tags if "id" in attrs}
    targets = re.findall(r'(?:href="|url\()#([^")]+)', text)
    assert set(targets) <= ids


def test_the_papers_number_stands_beside_ours(text):
    assert ">1.000 ± 0.010<" in text
    assert ">1.00<" in text


def test_question_reading_and_settings_are_there(text):
    for words in ("Which remembers?", "The cache remembers.", "n items", "setting of Floor"):
        assert words in text


def test_a_failing_claim_is_seen_at_once(make_result):
    text = page.render([make_result(claimed=0.5)])
    assert "0 hold, 1 differs" in text
    assert "recall differs" in text


def test_the_page_knows_dark_and_print(text):
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'name="viewport"' in text


def test_colours_of_the_figures_follow_the_page(text):
    drawn = text[text.index("<svg") :]
    assert "var(--cache)" in drawn
    assert not re.search(r"(fill|stroke): #(?!000000|ffffff)", drawn)


def test_a_study_without_figures_still_has_its_table(result):
    text = page.render([result, replace(result, study="other", title="Another table")])
    assert "Another table" in text


def test_the_same_results_give_the_same_page(result):
    assert page.render([result]) == page.render([result])


def test_no_results_make_no_page():
    with pytest.raises(ValueError, match="at least one result"):
        page.render([])


def test_the_page_is_put_in_place_whole(result, tmp_path):
    page.write([result], tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


def test_a_row_without_data_is_on_the_page_and_not_marked_as_held(partly):
    text = page.render([partly])
    assert Outline(text).open == []
    assert "0 inconclusive, 1 not measured" in text
    assert (
        '<td class="not-measured"><span aria-hidden="true">○</span> not measured: data missing'
        in text
    )
    assert "reproduction.data get mimic" in text


def test_a_study_without_data_has_its_place_on_the_page(result, lacking):
    text = page.render([result, replace(lacking, study="tau", title="Another")])
    assert Outline(text).open == []
    assert "This study is not measured: data missing." in text
    assert text.count("<h3>Findings</h3>") == 1


def test_a_page_of_nothing_but_absence_can_be_made(lacking):
    text = page.render([lacking])
    assert Outline(text).open == []
    assert "0 inconclusive, 1 not measured" in text


def test_the_story_is_the_first_figure_there_is(lacking, result):
    text = page.render([replace(lacking, study="toy"), result])
    story = text[text.index('class="story"') : text.index('id="study-toy"')]
    assert len(Outline(text).all("svg")) == 3
    assert story.count("<svg") == 1
