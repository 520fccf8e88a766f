"""Rows of CSV as they come: with quotes that slipped in, and with every kind of space."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.dedup.separated import Csv, cells, row
from tests.cli.test_dedup import dedup, reasons


def numbered(texts):
    return "id,text\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts))


@pytest.mark.parametrize(
    "space", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r"]
)
def test_only_newlines_end_rows(tmp_path, space):
    path = tmp_path / "rows.csv"
    texts = [f"one{space}door", f'"another{space}gate, quoted"', "an apple"]
    path.write_bytes(numbered(texts).encode())
    answer = dedup(path, "--field", "text")
    assert answer.stdout_bytes.decode() == numbered(texts)
    assert "left out" not in answer.stderr


def test_a_stray_quote_is_a_character(tmp_path):
    path = tmp_path / "rows.csv"
    texts = [f'{n * n}" pipe {n * n * n}, sold in {n * 7919}' for n in range(2000)]
    path.write_text(numbered(texts))
    answer = dedup(path, "--field", "text", "--similarity", "1")
    assert "records: 2,000 in" in answer.stderr
    assert "left out" not in answer.stderr


def test_an_open_quote_matters_in_its_own_row_only(tmp_path):
    path = tmp_path / "rows.csv"
    given = 'id,text\n1,"never closed\n2,fine\n3,"well, closed"\n4,"also open\n'
    path.write_text(given + '5,"also open"\n')
    answer = dedup(path, "--field", "text", "--explain")
    assert answer.stdout == given
    assert [one["text"] for one in reasons(answer)] == ["also open"]


@given(st.text('a",\u2028;\x0b é', max_size=20))
def test_a_line_is_read_as_the_standard_library_reads_it(line):
    expected = next(csv.reader([line]), []) or [""]
    assert [cell.decode() for cell in cells(line.encode(), b",")] == expected


@given(st.lists(st.lists(st.text('a",\n\r\x85'), min_size=1), min_size=1), st.data())
def test_what_is_well_written_is_read_whole_in_any_pieces(table, data):
    class Out(list):
        write = list.append

    out = Out()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(table)
    held, place, found = "".join(out).encode(), 0, []
    for end in (data.draw(st.integers(0, len(held))), len(held)):
        while (one := row(held[:end], place, b",", over=end == len(held))) is not None:
            place = one[0]
            found.append([cell.decode() for cell in one[1]])
    assert found == table


def test_an_open_quote_is_a_slip_after_a_while(monkeypatch):
    monkeypatch.setattr("distinctkv.dedup.separated.OPEN", 20)
    form, held = Csv("a", b"a,b"), b'"open,1\n' + b"x,2\n" * 9
    records, end = form.cut(held, over=False)
    assert [one.content for one in records] == ["open,1", *"x" * 9]
    assert end == len(held)


@pytest.mark.parametrize("separator", ",\t;|")
def test_a_row_of_empty_cells_is_a_row_and_a_blank_line_is_none(separator):
    form = Csv("text", separator.join(("id", "text", "note")).encode())
    given = f"1{separator}a{separator}\n{2 * separator}\r\n\n \r\n {2 * separator}\n"
    records, _ = form.cut(given.encode(), over=True)
    assert [(one.content, one.line) for one in records] == [("a", 0), ("", 1), ("", 4)]


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,id,text\na,1,b\n")
    answer = dedup(path, "--field", "text")
    assert answer.exit_code == 1
    assert "two columns are named 'text'" in answer.stderr


def test_a_table_without_a_field_asks_for_one(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('id,text\n1,"two\nlines"\n')
    answer = dedup(path)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "'id,text'" in answer.stderr
    assert "--format text" in answer.stderr
    assert dedup(path, "--format", "text").stdout == path.read_text()
