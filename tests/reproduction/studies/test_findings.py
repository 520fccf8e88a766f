import re
from pathlib import Path

import pytest

from reproduction.result import Measure, Row
from reproduction.studies import NAMES, findings
from reproduction.studies.findings import paragraphs, render

ROWS = (
    Row("dp", "Ours", {"slots / distinct": Measure(1.25, 0.5, 4)}, "", "cache", "points"),
    Row("h2o", "H2O", {"recall": Measure(0.5, 0.25, 4)}, "", "paper", "points"),
    Row("h2o", "H2O", {"B=64": Measure(0.125, 0.0, 4)}, "", "paper", "lead"),
    Row("mimic", "MIMIC-IV", {}, "", "paper", "points", missing="mimic"),
)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{dp.slots / distinct:.1f}", "1.2"),
        ("{points.dp.slots / distinct:.2f}", "1.25"),
        ("{points.h2o.recall:.0%} and {lead.h2o.B=64}", "50% and 0.125"),
        ("{dp.slots / distinct.sd:.1f} of {dp.slots / distinct.n}", "0.5 of 4"),
        ("{n:,} {word}", "1,000 tokens"),
        ("one line\nand the next", "one line and the next"),
    ],
)
def test_names_and_formats(template, text):
    assert render(template, ROWS, n=1000, word="tokens") == (text,)


def test_blank_lines_part_paragraphs():
    assert render("\none\n\ntwo\ntwo\n \nthree\n", ROWS) == ("one", "two two", "three")


def test_a_sentence_on_missing_data_is_left_out():
    template = "One.\n{mimic.recall:.3f}.\nTwo.\n\n{points.mimic.recall:.3f}\n\nThree.\n{gone}"
    assert render(template, ROWS, gone=None) == ("One. Two.", "", "Three.")


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_an_answer_and_notes_with_a_sentence_a_line(name):
    template = Path(findings.__file__).with_name(f"{name}.md").read_text(encoding="utf-8")
    answer, _, notes = template.strip().partition("\n\n")
    assert 2 <= len(answer.splitlines()) <= 3
    assert "\n\n" not in notes
    assert all(re.search(r"[.}]$", line) for line in template.splitlines() if line)


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{h2o.recall}", "points.h2o.recall"),  # two tables have a row h2o
        ("{dp.recal}", "unknown name {dp.recal}"),
        ("{dp.slots / distinct:.3q}", "code 'q'"),
        ("{dp.slots / distinct", "brace"),
    ],
)
def test_errors(template, error):
    with pytest.raises(ValueError, match=error):
        render(template, ROWS)


def test_the_template_of_a_study_is_read_and_named_in_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "toy.md").write_text("{dp.slots / distinct:.1f}\n")
    assert paragraphs("toy", ROWS) == ("1.2",)
    (tmp_path / "toy.md").write_text("{nobody}")
    with pytest.raises(ValueError, match=r"findings/toy\.md"):
        paragraphs("toy", ROWS)
