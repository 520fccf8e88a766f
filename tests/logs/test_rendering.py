"""Texts of templates and values of lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs import LogParser
from distinctkv.logs.rendering import REST, Rendering, align, common
from distinctkv.logs.tokenizer import clean, mask, tokenize
from reproduction.data import loghub
from tests.logs.strategies import hard_line, logs


def rendered(line):
    read = tokenize(mask(clean(line)))
    return Rendering(read.literals, read.separators)


def keyed(line):
    return tokenize(mask(clean(line))).key, rendered(line)


def test_a_line_is_written_as_it_stands_but_for_its_values():
    assert rendered("from 10.0.0.1  (ssh2): ok").text() == "from <*>  (ssh2): ok"


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        ("port 5 ssh2", "port 6 ssh1", "port <*> <*>"),
        ("delete 1 2 3", "delete 1", "delete <*>"),
        ("use 5 MB of 7 [3:4]", "use 5 of 7 [3:4]", "use <*> of <*> [<*>]"),
        ("lifetime 00:01", "lifetime <1 sec", "lifetime <*>"),
        ("call f(3)", "call g(3, 4)", "call <*>"),
        ("open [a, 1] now", "open [b, 2] now", "open [<*>, <*>] now"),
        ("open 'a b' now", "open None now", "open <*> now"),
        ("said (7) by [x]", "said (8)", "said (<*>)<*>"),
        ("see [1], ok", "see [1] ok", "see [<*>]<*>ok"),
    ],
)
def test_two_lines_share(one, two, text):
    merged = rendered(one).merge(rendered(two))
    assert merged.text() == text
    assert None not in (align(text, one), align(text, two))


@given(st.lists(hard_line, min_size=3, max_size=3))
def test_the_order_does_not_matter(lines):
    one, two, three = map(rendered, lines)
    if len({len(each.literals) for each in (one, two, three)}) == 1:
        assert one.merge(two).merge(three) == three.merge(two.merge(one))
        assert one.merge(two).merge(three) == two.merge(three).merge(one)


def test_a_wildcard_of_a_pattern_is_one_in_the_text():
    rendering = rendered("user ann, in")
    assert rendering.under(("user", "ann", "in"), ("user", "<*>", "in")).text() == "user <*>, in"
    key = ("a", ":", "b", "c")
    assert rendered("a: b c").under(key, ("a", ":", REST)).text() == "a: <*>"
    assert rendered("a:").under(key[:2], ("a", ":", REST)).text() == "a:<*>"


def test_keys_of_several_lengths_share_their_ends():
    lines = "open the front door now", "open the door now", "open the now"
    text = common([*map(keyed, lines)]).text()
    assert text == "open the <*>now"
    assert None not in [align(text, line) for line in lines]


@given(logs())
def test_every_line_fits_its_template(lines):
    parser = LogParser()
    parser.add_many(lines)
    texts = {row.id: row.template for row in parser.templates()}
    for line in lines:
        match = parser.match(line)
        assert match.template == texts[match.id]
        first, *rest = match.template.split("<*>")
        assert first + "".join(map(str.__add__, match.parameters, rest)) == clean(line)


@pytest.mark.data
@pytest.mark.parametrize("system", ["HDFS", "Proxifier", "Thunderbird", "Linux", "HPC"])
def test_a_template_and_its_values_give_the_line_back(system):
    lines = loghub.load(system).lines
    parser = LogParser()
    parser.add_many(lines)
    for line in lines:
        match = parser.match(line)
        first, *rest = match.template.split("<*>")
        assert first + "".join(map(str.__add__, match.parameters, rest)) == line
