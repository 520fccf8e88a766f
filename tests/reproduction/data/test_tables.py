import numpy as np
import pytest

from reproduction.data import DataDamaged
from reproduction.data.tables import columns, seconds


def test_quotes_line_ends_and_a_mark_in_front_are_read():
    content = b'\xef\xbb\xbfid,text\r\n1,"a, ""b""\r\nc"\r\n\r\n2,\r\n'
    assert columns(content, ["id", "text"], "x") == [("1", "2"), ('a, "b"\r\nc', "")]


def test_bytes_that_are_no_text_are_kept():
    (texts,) = columns(b"text\n\xff\x00\n", ["text"], "x")
    assert texts[0].encode("utf-8", "surrogateescape") == b"\xff\x00"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a CSV file"),
        (b'id\n"1', "not a CSV file"),
        (b"name\n1\n", "no column id; it has name"),
        (b"id,name\n1,a\n2\n", "row 2 has less than 2 fields"),
    ],
)
def test_what_is_not_the_table_is_refused(content, complaint):
    with pytest.raises(DataDamaged, match=complaint):
        columns(content, ["id"], "x")


def test_dates_of_both_kinds_are_seconds():
    dates = ["20090412", "", "2201-10-30 12:00:00", "20090412"]
    np.testing.assert_array_equal(seconds(dates, "x"), [1239494400, -1, 7315790400, 1239494400])


@pytest.mark.parametrize("date", ["20091345", "soon", "2009"])
def test_a_date_that_is_none_is_refused(date):
    with pytest.raises(DataDamaged, match="a date that is none"):
        seconds([date], "x")
