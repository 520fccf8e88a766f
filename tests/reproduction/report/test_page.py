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
    assert sum("Fixed state: " in label for label in labels) == 2
    assert len(Outline(text).all("figcaption")) == len(Outline(text).all("svg")) == 2


def test_every_table_has_a_caption_and_headed_cells_and_scrolls_in_its_box(text):
    outline = Outline(text)
    assert len(outline.all("caption")) == len(outline.all("table")) == 2
    assert all("scope" in attrs for attrs in outline.all("th"))
    assert text.count('<div class="scroll"') == 2


def test_no_id_is_given_twice(text):
    ids = [attrs["id"] for _, attrs in Outline(text).tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_a_reference_inside_a_figure_finds_its_target(text):
    ids = {attrs["id"] for _, attrs in Outline(text).tags if "id" in attrs}
    targets = re.findall(r'(?:href="|url\()#([^")]+)', text[text.index("<svg") :])
    assert targets
    assert {target for target in targets if not target.startswith("study-")} <= ids


def cells(text, *start):
    """The words of the table row that begins with these."""
    rows = re.findall(r"<tr.*?</tr>", text, flags=re.DOTALL)
    words = [re.sub(r"<[^>]+>", " ", row).split() for row in rows]
    return next(row for row in words if row[: len(start)] == [*start])


def test_a_claim_stands_with_margin_tolerance_and_verdict(text):
    assert cells(text, "Ours", "recall") == [
        *("Ours", "recall", "1.00", "1.000", "0.016", "0.05", "✓", "holds")
    ]


def test_a_claim_that_differs_says_so_and_why(make_result):
    text = page.render([make_result(claimed=0.5, explanation="their `machine`")])
    assert cells(text, "Ours", "recall")[6:] == ["≠", "differs", "their", "machine"]
    assert "1 independent claim: 0 hold, 1 differs" in text


def test_question_answer_and_settings_are_there(text):
    for words in ("Which remembers?", "n items", "setting of Floor"):
        assert words in text


def test_the_answer_is_open_and_the_notes_are_folded(text):
    study = text[text.index('id="study-recall"') :]
    shown, _, folded = study.partition("<details>")
    assert "The <code>cache</code> remembers." in shown
    assert "A note: −0.5 is <strong>little</strong>." in folded


def test_no_markdown_is_left(text):
    assert not re.search(r"`|\*\*|\]\(", text[text.index("<header") :])


def test_the_page_knows_dark_and_print(text):
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'name="viewport"' in text


def test_our_colour_has_no_other_meaning():
    css = page.environment().loader.get_source(None, "page.css")[0]
    users = [line for line in css.splitlines() if "var(--ours)" in line]
    assert len(users) == 1
    assert users[0].startswith(".cache")


def test_a_study_without_a_figure_still_has_its_table(result):
    text = page.render([result, replace(result, study="other", title="Another table")])
    assert "Another table" in text
    assert len(Outline(text).all("svg")) == 2


def test_the_same_results_give_the_same_page(result):
    assert page.render([result]) == page.render([result])


def test_no_results_make_no_page():
    with pytest.raises(ValueError, match="at least one result"):
        page.render([])


def test_the_page_is_put_in_place_whole(result, tmp_path):
    page.write([result], tmp_path / "new" / "report.html")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]


def test_a_row_without_data_is_on_the_page_and_says_so(partly):
    text = page.render([partly])
    assert Outline(text).open == []
    assert cells(text, "Drugs", "recall")[2:] == ["0.99", "–", "–", "0.005", "○", "not", "measured"]
    assert "Some rows are not measured." in text
    assert "reproduction.data get mimic" in text


def test_a_study_without_data_has_its_place_on_the_page(result, lacking):
    text = page.render([result, replace(lacking, study="tau", title="Another")])
    assert Outline(text).open == []
    assert "This study is not measured." in text


def test_a_page_of_nothing_but_absence_can_be_made(lacking):
    text = page.render([lacking])
    assert Outline(text).open == []
    assert "1 not measured" in text


def test_the_picture_and_the_summary_come_first(result):
    other = replace(result, study="tau", rows=(), claims=())
    text = page.render([other, result])
    head = text[text.index('class="pair head"') : text.index('id="study-tau"')]
    assert head.count("<svg") == 1
    assert head.index("<svg") < head.index("What holds, what does not")
    assert "One slot for each distinct item: recall 1.000 from 64 slots" not in head  # no attention
    assert "A toy table" in head
