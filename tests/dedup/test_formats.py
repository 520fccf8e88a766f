"""Records in files are found again byte for byte, in whatever pieces the files are read."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.dedup import formats
from distinctkv.dedup.formats import Csv, FormatError, JsonLines, Text, detect

LINES = st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"")), max_size=9)


def read(form, content, chunk=1 << 20):
    """The records of a file that comes in chunks of some size."""
    lines = (content[start : start + chunk] for start in range(0, len(content), chunk))
    raw = io.BufferedReader(io.BytesIO(b"".join(lines)), chunk)
    batches = [*form.read(formats.iterate_lines(raw), "a file")]
    return [record for batch in batches for record in batch.records]


@given(LINES, st.integers(1, 9))
def test_lines_are_found_in_any_chunks(lines, chunk):
    content = b"." + b"\n".join(lines)
    found = read(Text(), content, chunk)
    assert b"\n".join(one.raw for one in found) in (content, content.removesuffix(b"\n"))
    assert [one.line for one in found] == [*range(1, len(found) + 1)]


@given(st.lists(st.lists(st.text('a",;\n\r\x85'), min_size=2, max_size=2)), st.integers(1, 9))
def test_rows_of_a_csv_writer_are_read_as_it_wrote_them(rows, chunk):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
    content = out.getvalue().encode()
    found = read(Csv("b"), content, chunk)
    assert [one.content for one in found] == [row[1] for row in rows]
    assert b"".join(one.raw + b"\n" for one in found) == content.partition(b"\n")[2]


STRAY = {
    "inches": (b'1,5" pipe\n2,6" pipe', ['5" pipe', '6" pipe']),
    "never closed": (b'1,"never\n2,fine\n3,"well, closed"', ["never", "fine", "well, closed"]),
    "closed too early": (b'1,"a" b\n2,c', ["a b", "c"]),
    "other spaces": (
        "1,one\u2028door\n2,a\x0bb\x1cc\x85d".encode(),
        ["one\u2028door", "a\x0bb\x1cc\x85d"],
    ),
    "empty": (b"1,\n\n,\n2,c", ["", "", "c"]),
    "a bare carriage return": (b"1,one\rdoor\r\n2,c\r", ["one door", "c"]),
}


@pytest.mark.parametrize(("content", "cells"), STRAY.values(), ids=STRAY)
def test_rows_as_people_write_them(content, cells):
    found = read(Csv("b"), b"a,b\n" + content)
    assert [one.content for one in found] == cells
    assert b"\n".join(one.raw for one in found) == content.replace(b"\n\n", b"\n")


HEADERS = {
    "one column": (b"text\none\ntwo", "text", ["one", "two"]),
    "one column of another name": (b'body\r\n"one, two"\r\n', "body", ["one, two"]),
    "one column and a comma without quotes": (b"text\none, two", "text", ["one, two"]),
    "more commas than semicolons": (b"id;text;a, b, c\n1;one;x", "text", ["one"]),
    "a comma in another name": (b"a, b;text\n1;one", "text", ["one"]),
}


@pytest.mark.parametrize(("content", "field", "cells"), HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("is_given", [False, True])
def test_the_separator_is_the_one_that_yields_the_column(content, field, cells, is_given):
    form = Csv(field if is_given else None)
    assert [one.content for one in read(form, content)] == cells
    assert form.field == field


@pytest.mark.parametrize("header", [b"", b"id,body", b"a;b;c, d"])
def test_a_header_without_a_column_to_choose_is_refused(header):
    with pytest.raises(FormatError, match="--field"):
        read(Csv(None), header + b"\n1,2\n")


def test_rows_that_lack_the_column_are_rejected_and_lines_are_counted_over_rows():
    found = read(Csv("b"), b'a,b\n1,"two\nlines"\n2\n\n3,c\n4')
    assert [(one.line, one.content is None) for one in found] == [
        (2, False),
        (4, True),
        (6, False),
        (7, True),
    ]


def test_cells_that_are_not_utf8_are_told_apart():
    one, other = read(Csv("b"), "a,b\n1,größer\n2,gräßer\n".encode("latin-1"))
    assert one.content != other.content


CHOICES = {
    "text that is null at first": (
        b'{"text": null, "title": "t"}\n{"text": "a", "title": "t"}\n',
        ("text", [None, "a"]),
    ),
    "text of numbers": (b'{"text": [1, 2], "title": "t"}\n', ("text", [[1, 2]])),
    "no text at first": (
        b'{"id": 1, "body": null}\n{}\n{"id": 2, "body": "b"}\n',
        ("body", [None, None, "b"]),
    ),
}


@pytest.mark.parametrize(("content", "chosen"), CHOICES.values(), ids=CHOICES)
def test_a_field_is_not_chosen_by_a_record_that_lacks_its_text(content, chosen):
    form = JsonLines(None)
    assert [one.content for one in read(form, content)] == chosen[1]
    assert form.field == chosen[0]


def test_a_field_is_chosen_from_the_first_object():
    form = JsonLines(None)
    first, second = read(form, b'{"id": 1, "body": "a"}\n{"text": "b"}\n')
    assert (form.field, first.content, second.content) == ("body", "a", None)
    with pytest.raises(FormatError, match="--field"):
        read(JsonLines(None), b'{"title": "a", "body": "a"}\n')


@pytest.mark.parametrize(
    ("path", "head", "field", "form"),
    [
        ("a.csv", b"{", None, "csv"),
        ("a.ndjson.zst", b"# a comment", None, "jsonl"),
        ("a.log", b"\n {", None, "jsonl"),
        ("a.log", b"a b c", None, "text"),
        ("a.log", b"a,b", "a", "csv"),
        ("a", b"PAR1", None, "parquet"),
        ("A.PARQUET", b"", None, "parquet"),
    ],
)
def test_the_format_is_told_by_suffix_or_first_bytes(path, head, field, form):
    assert detect(path, head, field) == form
