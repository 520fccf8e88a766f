"""Lines: their keys, and what they have in common, side by side."""

import pytest

from distinctkv.logs.tokenizer import LONG, MEMO, Reader, collapse, glue

KEYS = [
    ("", ""),
    ("   ", ""),
    ("Took 25 ms", "Took <*>"),
    ("Took 3 KB (3072 bytes) from cache", "Took <*> from cache"),
    ("delete blk_1 blk_2 blk_3", "delete <*>"),
    ("Rect(0, 0 - 720, 1208)", "Rect <*>"),
    ("session opened for user root by (uid=0)", "session opened for user <*> by uid <*>"),
    ("check pass; user unknown", "check pass user unknown"),
    ('tag="View Lock" held', "tag View\ue000Lock held"),
    ("at Fri Jun 17 07:07:00 2005", "at <*>"),
    ("at Fri, 17 Jun 2005 07:07:00 +0200 ok", "at <*> ok"),
    ("status=M Fri Jul 01 08:16:53 PDT 2005", "status M <*>"),
    ("since Wed Jan  7 10:15:39 CET 2024", "since <*>"),
    ("07 Mar 2024 10:15:39 GET /door", "<*> GET <*>"),
    ("3/7/2024 2:24 PM ok", "<*> ok"),
    ("at 99.5 Mbit/s, 2 weeks left", "at <*> left"),
    ("on May 5, 2021", "on <*>"),
    ("on 17 June 2005 at noon", "on <*> at noon"),
    ("[17/Jun/2005:07:07:00 +0200] ok", "<*> ok"),
    ("2005-06-17T07:07:00.123Z ok", "<*> ok"),
    ("May I come in", "May I come in"),
    ("read 0f ab 12 cd 34 done", "read <*> done"),
    ("be in bed", "be in bed"),
    ('by "curl/8.4.0 (x; y)" ok', "by <*> ok"),
    ("Started Session 3 of user ann.", "Started Session <*> of user <*>"),
    ("\x1b[31mERROR\x1b[0m in disk 3", "ERROR in disk <*>"),
]


@pytest.mark.parametrize(("line", "key"), KEYS)
def test_a_line_has_this_key(line, key):
    assert " ".join(Reader().read(collapse(line)).key) == key


@pytest.mark.parametrize(
    ("line", "collapsed"),
    [
        ("Took 25 ms on eth0", "Took 00 ms on eth0"),
        ("at 0x7f3a, 10.0.0.1", "at 00, 00.00.00.00"),
        ("md5(5) = a1b2", "md5(00) = a00"),
        ("PSR0=1f PSR12=3", "PSR0=00 PSR00=00"),
    ],
)
def test_lines_collapse(line, collapsed):
    assert collapse(line) == collapsed


def test_letters_before_an_id_do_not_matter():
    assert glue(collapse("open abc123, a1 and eth0")) == glue(collapse("open x9, zz77 and eth0"))


def test_every_token_has_a_place_in_the_key():
    line = Reader().read("Took 25 ms, 30 ms to [1, 2, 3] end")
    assert line.places == (0, 1, -1, 1, -1, 2, 3, 3, 3, 4)
    assert max(line.places) == len(line.key) - 1


def test_words_that_are_remembered_are_bounded():
    reader = Reader()
    reader.read("x" * (LONG + 1))
    assert not reader.words
    for number in range(MEMO + 5):
        reader.read(f"w{number}")
    assert len(reader.words) == 5
