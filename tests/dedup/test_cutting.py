"""Lines that are very long, or never end."""

import tracemalloc
from itertools import islice

import pytest

from distinctkv.dedup import cutting, encoding, guessing
from distinctkv.dedup.encoding import NGrams
from distinctkv.dedup.finding import Finder
from distinctkv.dedup.forms import Text
from distinctkv.dedup.spots import Spot
from distinctkv.logs.places import Trail
from distinctkv.logs.unpacking import SourceError


class Pipe:
    """Gives pieces, and the last of them for ever."""

    name = path = "a pipe"
    regular = False

    def __init__(self, *pieces):
        self.pieces = [*pieces]

    def ready(self, _seconds):
        return True

    def read(self, _n):
        return self.pieces.pop(0) if len(self.pieces) > 1 else self.pieces[0]


def cut(pipe, form="text", stop=lambda: False, aside=None):
    trail, spot = Trail(), Spot(pipe, 0)
    found = Finder(form, None if form == "text" else "text")
    return cutting.batches(pipe, trail, spot, found, stop, aside)


@pytest.fixture
def longest(monkeypatch):
    monkeypatch.setattr(cutting, "LONGEST", 1000)
    monkeypatch.setattr(guessing, "LONGEST", 1000)
    monkeypatch.setattr(cutting, "MOST", 100)


def test_a_line_that_never_ends_can_be_left(longest):
    stops = iter([False] * 50)
    batches = cut(Pipe(b"x" * 100), stop=lambda: next(stops, True))
    told = (record for batch in islice(batches, 200) for record in batch)
    assert "longer than" in next(told).why


def test_what_follows_a_long_line_is_read_at_once(longest):
    pipe = Pipe(b"x" * 1001, b"xx\none\n", b"tw", b"o\n", b"")
    assert [[one.content for one in batch] for batch in cut(pipe) if batch] == [
        [None],
        ["one"],
        ["two"],
    ]


@pytest.mark.parametrize("pieces", [[b"x" * 1001 + b"\n"], [b"x" * 500, b"x" * 501 + b"\n"]])
def test_a_line_is_too_long_in_whatever_pieces_it_comes(longest, pieces):
    [record] = [one for batch in cut(Pipe(*pieces, b"")) for one in batch]
    assert (record.raw, record.content) == (b"", None)


def test_a_long_last_line_is_put_aside_and_counted(longest):
    aside = []
    assert not any(cut(Pipe(b"x" * 1001, b"x", b""), aside=aside))
    [(form, held, _)] = aside
    [record] = form.cut(held, over=True)[0]
    assert "longer than" in record.why


def test_a_long_line_is_not_looked_at_with_every_piece(longest, monkeypatch):
    looks, real = [], Text.cut
    monkeypatch.setattr(Text, "cut", lambda *a, **k: looks.append(1) or real(*a, **k))
    [record] = [one for batch in cut(Pipe(*[b"x"] * 900, b"\n", b"")) for one in batch]
    assert record.raw == b"x" * 900
    assert len(looks) < 5


@pytest.mark.parametrize("form", ["csv", "auto"])
def test_columns_without_end_are_refused(longest, form):
    with pytest.raises(SourceError, match="the first line of a pipe is longer than 1,000 bytes"):
        list(islice(cut(Pipe(b"x" * 100), form), 200))


def test_blanks_without_end_are_refused():
    with pytest.raises(SourceError, match=r"a pipe begins with more than .* --format"):
        list(islice(cut(Pipe(b" \n" * 100_000), "auto"), 200))


@pytest.mark.parametrize("n", [1, 2, 4, 7])
@pytest.mark.parametrize("length", [63, 64, 65, 66, 67, 68, 128, 129, 200])
def test_a_long_text_has_the_runs_of_a_short_one(monkeypatch, n, length):
    text = "".join("ab\u20ac"[number * number % 7 % 3] for number in range(length))
    whole = NGrams(n=n)([text])
    monkeypatch.setattr(encoding, "CHARACTERS", 64)
    assert (NGrams(n=n)([text]) == whole).all()


def test_a_long_text_is_encoded_with_little_memory():
    text = "some words " * 400_000
    tracemalloc.start()
    NGrams()([text])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(text)
