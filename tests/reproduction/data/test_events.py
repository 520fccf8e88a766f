import numpy as np
import pytest

from reproduction.data import DataDamaged, Events, numbered, windows
from reproduction.data.events import columns, seconds


@pytest.fixture
def fruit():
    items, names = numbered(["apple", "pear", "apple", "plum", "cherry"])
    return Events(
        items,
        labels=np.array([0, 1, 0, 2, 0]),
        times=np.array([10, 20, 30, 40, 50]),
        names=names,
        classes=("red", "green", "blue"),
        source="orchard",
    )


def test_items_are_numbered_as_they_come(fruit):
    np.testing.assert_array_equal(fruit.items, [0, 1, 0, 2, 3])
    assert fruit.items.dtype == np.int64
    assert fruit.names == ("apple", "pear", "plum", "cherry")


def test_the_head_has_the_first_events_and_all_the_names(fruit):
    head = fruit.head(3)
    assert (len(head), head.n_distinct, head.names) == (3, 2, fruit.names)


def test_a_coarse_stream_has_classes_for_items(fruit):
    coarse = fruit.coarse()
    np.testing.assert_array_equal(coarse.items, [0, 1, 0, 2, 0])
    assert coarse.names == ("red", "green", "blue")
    assert coarse.n_distinct == 3


def test_columns_of_different_lengths_are_refused(fruit):
    with pytest.raises(ValueError, match="of one length"):
        Events(fruit.items, fruit.labels[:2], fruit.times, (), (), "")


def test_windows_are_of_equal_length_and_the_last_time_is_in_the_last():
    times = np.array([100, 119, 120, 139, 140, 199, 200])
    np.testing.assert_array_equal(windows(times, 5), [0, 0, 1, 1, 2, 4, 4])


def test_windows_do_not_need_order(rng):
    times = rng.integers(10**9, size=100)
    shuffled = rng.permutation(100)
    np.testing.assert_array_equal(windows(times)[shuffled], windows(times[shuffled]))


def test_one_moment_is_one_window():
    np.testing.assert_array_equal(windows(np.array([7, 7])), [0, 0])
    assert len(windows(np.array([], dtype=np.int64))) == 0


def test_no_windows_are_refused():
    with pytest.raises(ValueError, match="n_windows must be at least 1, got 0"):
        windows(np.array([1, 2]), 0)


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
