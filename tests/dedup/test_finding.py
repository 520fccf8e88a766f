"""How records are cut is known once enough of them was seen, and not before."""

import pytest

from distinctkv.dedup.finding import ENOUGH, PATIENCE, Finder
from distinctkv.dedup.forms import Json
from distinctkv.dedup.separated import Csv
from distinctkv.logs.unpacking import SourceError

LINE = b"2024-05-01 10:00:07 INFO the door is open\n"


class Pipe:
    """What is read, by name."""

    name = "a pipe"


def begin(found, held, over=False, waited=0.0, whole=False):
    return found.begin(held, Pipe(), over=over, waited=waited, whole=whole)


def guessing():
    found = Finder("text", None)
    found.guessing = True
    return found


@pytest.mark.parametrize(
    ("lines", "over", "waited", "known"),
    [
        (9, False, 0.0, False),
        (9, False, PATIENCE, False),
        (9, False, PATIENCE + 1, True),
        (ENOUGH, False, 0.0, False),
        (ENOUGH, False, 0.1, True),
        (1000, False, 0.0, True),
        (9, True, 0.0, True),
        (0, False, PATIENCE + 1, False),
    ],
)
def test_a_header_is_guessed_from_enough_lines_or_after_a_while(lines, over, waited, known):
    found = guessing()
    assert bool(begin(found, LINE * lines, over, waited)) == known
    assert bool(found.stamp) == known


def test_a_line_that_may_be_half_written_says_nothing():
    found = guessing()
    assert begin(found, LINE[:-1], over=True, whole=True)
    assert (found.guessing, found.stamp) == (True, None)
    assert begin(found, LINE[:-1], over=True)
    assert found.stamp is not None


@pytest.mark.parametrize("start", [b"", b"[", b" [ \n ", b"{"])
def test_too_little_says_nothing(start):
    assert begin(Finder("auto", "text"), start) is None


def test_what_is_piped_is_known_by_its_start():
    assert isinstance(begin(Finder("auto", "text"), b' {"text"'), Json)
    assert isinstance(begin(Finder("auto", "text"), b"id,text\n"), Csv)
    with pytest.raises(SourceError, match="a pipe is a JSON array"):
        begin(Finder("auto", "text"), b"[\n {")


@pytest.mark.parametrize("form", ["auto", "csv"])
def test_blank_lines_are_no_records(form):
    form = begin(Finder(form, "text"), b"\n\n", over=True)
    assert form.cut(b"\n\n", over=True)[0] == []
