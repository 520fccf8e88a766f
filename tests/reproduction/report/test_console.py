import io
from dataclasses import replace

from rich.console import Console

from reproduction.report.console import tables


def shown(result, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(tables(result))
    return console.file.getvalue()


def test_the_answer_and_the_claim_are_told(result):
    text = shown(result)
    assert "The cache remembers." in text
    line = next(line for line in text.splitlines() if line.startswith("Ours"))
    assert line.split()[1:] == ["recall", "1.00", "1.000", "±", "0.016", "0.05", "✓", "holds"]
    assert text.rstrip().endswith("1 holds")


def test_a_narrow_terminal_cuts_nothing_off(make_result):
    text = shown(make_result(label="A name that is longer than its table may be " * 2), width=60)
    assert "…" not in text
    assert "1.000 ± 0.016" in text


def test_claims_of_other_kinds_are_not_in_the_table(make_result):
    text = shown(make_result(kind="file count"))
    assert "no independent claim; 1 of other kinds" in text
    assert "tolerance" not in text


def test_without_claims_the_first_table_is_shown_and_brackets_are_no_colour(result):
    text = shown(replace(result, claims=()))
    assert "Heavy [bold]" in text
    assert "0.900 ± 0.010" in text


def test_a_row_without_data_has_dashes_and_says_why(partly):
    text = shown(partly)
    line = next(line for line in text.splitlines() if line.startswith("Drugs"))
    assert line.split()[2:] == ["0.99", "–", "0.005", "○", "not", "measured"]
    assert "reproduction.data get mimic" in text


def test_a_study_without_data_says_so_and_what_to_do(lacking):
    text = " ".join(shown(lacking).split())
    assert "not measured: data missing" in text
    assert "Missing data: mimic, synpuf. Run python -m reproduction.data get NAME for each" in text
