"""Spellings: what template texts learn from lines."""

from distinctkv.streams.lines import Reader
from distinctkv.streams.spelling import Spelling


def spelt(line):
    return Spelling.of(Reader().read(line))


def test_a_line_is_written_as_it_stands_but_for_its_values():
    assert spelt("from 10.0.0.1  (ssh2): ok").write() == "from <*> (ssh2): ok"


def test_a_name_that_changes_becomes_a_wildcard():
    assert spelt("port 5 ssh2").meet(spelt("port 6 ssh1")).write() == "port <*> <*>"


def test_the_shorter_list_is_the_one_that_is_written():
    assert spelt("delete 1 2 3").meet(spelt("delete 1")).write() == "delete <*>"


def test_the_order_does_not_matter():
    one, two, three = map(spelt, ("a [1] ssh2", "a (1) ssh3", "a 1 2 ssh2"))
    assert one.meet(two).meet(three) == three.meet(two.meet(one)) == two.meet(three).meet(one)


def test_a_hole_of_the_template_is_a_wildcard():
    assert spelt("user ann, in").under(("user", "ann", "in"), ("user", "<*>", "in")).write() == (
        "user <*>, in"
    )
