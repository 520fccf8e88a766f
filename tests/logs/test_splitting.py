"""Any bytes, cut in any way, give the lines and the counts of the whole."""

import codecs
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.splitting import Splitter, Tally

LONGEST = 8  # characters, so that cutting happens
PARTS = st.sampled_from(
    (b"\n", b"\r\n", b"\r", b"\0", b" ", b"\t", b"a", b"bee", b"\xff", b"\xe2\x82\xac", b"\xe2\x82",
     b"\xf0\x9f\x98\x80", b"x" * 40, b"y" * 35, "é".encode() * 9)
)  # fmt: skip
TEXTS = st.lists(PARTS, max_size=40).map(b"".join) | st.binary(max_size=200)


def whole(text):
    """What the lines and counts must be, written without a thought for speed or memory."""
    raws = text.split(b"\n")
    unended = raws.pop()
    ended = [raw.removesuffix(b"\r") for raw in raws]
    tally = Tally(crlf=sum(raw.endswith(b"\r") for raw in raws), unended=bool(unended))
    lines = []
    for raw in ended + [unended] * bool(unended):
        start = raw[: 4 * LONGEST + 4]
        line = start.decode("utf-8", "replace")[:LONGEST]
        lines.append(line)
        tally.cut += len(start) < len(raw) or len(start.decode("utf-8", "replace")) > LONGEST
        tally.undecodable += not decodes(start, len(raw) > len(start))
        tally.nul += "\0" in line
        tally.empty += not line.strip()
    tally.lines = len(lines)
    return lines, asdict(tally)


def decodes(start, longer):
    """Whether bytes are UTF-8; the last character may be cut in two if more bytes follow."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start, not longer)
    except UnicodeDecodeError:
        return False
    return True


def pieces_of(text, places):
    places = sorted({min(place, len(text)) for place in places})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12))
def test_pieces_do_not_matter(text, places):
    splitter = Splitter(Tally(), LONGEST)
    lines = [line for piece in pieces_of(text, places) for line in splitter.push(piece)]
    lines += splitter.end()
    assert (lines, asdict(splitter.tally)) == whole(text)


@given(TEXTS)
def test_every_byte_alone_is_as_good_as_all_at_once(text):
    splitter = Splitter(Tally(), LONGEST)
    lines = [line for byte in text for line in splitter.push(bytes([byte]))] + splitter.end()
    assert (lines, asdict(splitter.tally)) == whole(text)


def test_a_line_without_end_takes_no_memory():
    splitter = Splitter(Tally(), 1000)
    for _ in range(2000):
        assert splitter.push(b"x" * 100_000) == []
        assert len(splitter._held) <= 4004
    assert splitter.pending == 200_000_000
    [line] = splitter.push(b"\n")
    assert (line, splitter.tally.cut) == ("x" * 1000, 1)


def test_blank_lines_are_lines():
    splitter = Splitter(Tally())
    assert splitter.push(b"\n \n\t\r\n") == ["", " ", "\t"]
    assert (splitter.tally.lines, splitter.tally.empty) == (3, 3)


def test_a_line_of_ten_megabytes_is_cut_and_the_next_is_not():
    splitter = Splitter(Tally())
    cut, kept = splitter.push(b"y" * 10_000_000 + b"\nnext\n")
    assert (len(cut), kept, splitter.tally.cut) == (10_000, "next", 1)
