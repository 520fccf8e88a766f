"""Spellings: what template texts learn from lines."""

import pytest

from distinctkv.logs import LogParser
from distinctkv.logs.rendering import Spelling, values
from distinctkv.logs.tokenizer import Reader
from reproduction.data import loghub


def spelt(line):
    return Spelling.of(Reader().read(line))


def test_a_line_is_written_as_it_stands_but_for_its_values():
    assert spelt("from 10.0.0.1  (ssh2): ok").write() == "from <*> (ssh2): ok"


def test_a_name_that_changes_becomes_a_wildcard():
    assert spelt("port 5 ssh2").meet(spelt("port 6 ssh1")).write() == "port <*> <*>"


def test_the_shorter_list_is_the_one_that_is_written():
    assert spelt("delete 1 2 3").meet(spelt("delete 1")).write() == "delete <*>"


def test_values_elsewhere_stay_apart():
    met = spelt("use 5 MB of 7 [3:4]").meet(spelt("use 5 of 7 [3:4]"))
    assert met.write() == "use <*> of <*> [<*>:<*>]"
    assert values(met, Reader().read("use 6 MB of 8 [1:2]")) == ("6 MB", "8", "1", "2")


def test_what_two_values_always_have_between_them_is_written():
    lines = "on [a1][b2]", "on [a1-][b2]"
    parser = LogParser()
    parser.add_many(lines)
    assert [parser.match(line).parameters for line in lines] == [("a1", "b2"), ("a1-", "b2")]
    assert parser.templates()[0].template == "on [<*>][<*>]"


def test_the_order_does_not_matter():
    one, two, three = map(spelt, ("a [1] ssh2", "a (1) ssh3", "a 1 2 ssh2"))
    assert one.meet(two).meet(three) == three.meet(two.meet(one)) == two.meet(three).meet(one)


def test_a_hole_of_the_template_is_a_wildcard():
    assert spelt("user ann, in").under(("user", "ann", "in"), ("user", "<*>", "in")).write() == (
        "user <*>, in"
    )


def test_what_differs_around_a_value_belongs_to_it():
    lines = "lifetime 00:01", "lifetime <1 sec"
    met = spelt(lines[0]).meet(spelt(lines[1]))
    assert met.write() == "lifetime <*>"
    assert [values(met, Reader().read(line)) for line in lines] == [("00:01",), ("<1 sec",)]


def test_an_empty_bracket_has_an_empty_value():
    assert values(spelt("from 10.0.0.1 () at"), Reader().read("from 10.0.0.1 () at")) == (
        "10.0.0.1",
        "",
    )


@pytest.mark.data
@pytest.mark.parametrize("system", ["HDFS", "Proxifier", "Thunderbird", "Linux", "HPC"])
def test_a_template_and_its_values_give_the_line_back(system):
    lines = loghub.load(system).lines
    parser = LogParser()
    parser.add_many(lines)
    parser.templates()
    lost = sum(not gives_back(parser.match(line), line) for line in lines)
    assert lost <= len(lines) / 100  # rare lines that are counted with a template of fewer words


def gives_back(match, line):
    texts = match.template.split("<*>")
    if len(texts) != len(match.parameters) + 1:
        return False
    whole = texts[0] + "".join(map(str.__add__, match.parameters, texts[1:]))
    return "".join(whole.split()) == "".join(line.split())
