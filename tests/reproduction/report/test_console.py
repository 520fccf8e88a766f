import io
from dataclasses import replace

from rich.console import Console

from reproduction.report.console import tables


def shown(result, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(tables(result))
    return console.file.getvalue()


def test_the_papers_number_stands_beside_ours(result):
    line = next(line for line in shown(result).splitlines() if line.lstrip().startswith("Ours"))
    assert "1.000 ± 0.010" in line
    assert "1.00" in line.split("0.010")[1]


def test_eighty_columns_show_setting_and_verdict(result):
    text = shown(result, width=80)
    assert "setting of Ours" in text
    assert "✓ recall holds: off by 0 ± 0.016, tolerance 0.05" in " ".join(text.split())
    assert "added, not in the paper" in text


def test_a_narrow_terminal_cuts_nothing_off(result):
    text = shown(result, width=50)
    assert "…" not in text
    assert text.count(" Ours ") > shown(result, width=80).count(" Ours ")


def test_a_long_name_gives_way_to_the_numbers(make_result):
    text = shown(make_result(label="A name that is longer than its table may be " * 2), width=80)
    assert "…" not in text
    assert "1.000 ± 0.010" in text
    assert "may be A name" in " ".join(text.split())


def test_brackets_in_a_name_are_shown(result):
    assert "Heavy [bold]" in shown(result)


def test_an_added_row_that_is_judged_shows_its_verdict(result):
    claim = replace(
        result.claims[0], id="recall.table.extra.recall", verdict="differs", explanation="a tie"
    )
    text = shown(replace(result, claims=(claim,)))
    assert "≠ recall differs:" in text
    assert "a tie" in text
    assert "added, not in the paper" not in text


def test_a_row_without_data_has_dashes_and_says_why(partly):
    text = shown(partly)
    line = next(line for line in text.splitlines() if line.lstrip().startswith("Drugs"))
    assert line.split()[1:] == ["–", "0.99", "–", "–"]
    assert "○ not measured: data missing" in text
    assert "reproduction.data get mimic" in text


def test_a_study_without_data_says_so_and_what_to_do(lacking):
    text = " ".join(shown(lacking).split())
    assert "not measured: data missing" in text
    assert "Missing data: mimic, synpuf. Run python -m reproduction.data get NAME for each" in text


def test_a_table_without_any_data_is_still_shown(partly):
    rows = tuple(row for row in partly.rows if row.missing)
    assert "Drugs" in shown(replace(partly, rows=rows, claims=partly.claims[-1:]))


def test_a_table_without_any_data_says_so_where_nothing_is_claimed(partly):
    rows = tuple(replace(row, table="more") for row in partly.rows if row.missing)
    text = " ".join(shown(replace(partly, rows=(*partly.rows, *rows), claims=())).split())
    assert text.count("not measured: data missing") == 1
    assert "1.000 ± 0.010" in text
