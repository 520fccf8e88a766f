"""Laws of the log parser for lines that no program writes."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Concentration
from distinctkv.logs import LogParser
from distinctkv.logs.tokenizer import Reader, collapse, glue, plain
from tests.logs.strategies import any_line, hard_line

lines = st.lists(hard_line | any_line, max_size=40)


def parsed(some):
    parser = LogParser()
    for line in some:
        parser.add(line)
    return parser


def counts(parser):
    return sorted((row.template, row.count) for row in parser.templates())


@given(hard_line)
def test_lines_that_collapse_alike_have_one_key(line):
    read = Reader().read(line)
    assert Reader().read(collapse(line)).key == Reader().read(glue(collapse(line))).key
    assert len(read.texts) == len(read.spelt) == len(read.places) == len(read.marks) - 1


@given(hard_line)
def test_no_letter_is_lost_between_the_words_of_a_line(line):
    read = Reader().read(line)
    text = read.marks[0] + "".join(map(str.__add__, read.texts, read.marks[1:]))
    assert "".join(plain(text).replace("<*>", "").split()) == "".join(
        plain(line).replace("<*>", "").split()
    )


@given(lines)
def test_no_line_is_lost_and_ids_stay_good(some):
    parser = LogParser()
    ids = [parser.add(line).id for line in some]
    rows = parser.templates()
    assert sum(row.count for row in rows) == parser.seen == len(some)
    assert [parser.resolve(number) for number in ids] == [parser.match(line).id for line in some]
    assert {parser.resolve(number) for number in ids} == {row.id for row in rows}


@given(lines, lines)
def test_a_parser_absorbs_any_other(ours, theirs):
    parser = parsed(ours)
    parser.absorb(parsed(theirs))
    assert counts(parser) == counts(parsed(ours + theirs))


@given(lines)
def test_any_parser_can_be_saved(some):
    parser = parsed(some)
    with tempfile.TemporaryDirectory() as folder:
        parser.save(Path(folder) / "state")
        assert LogParser.load(Path(folder) / "state").templates() == parser.templates()


@given(lines, st.integers(1, 40))
def test_a_short_limit_cuts_and_loses_nothing(some, max_line):
    parser = LogParser(Concentration.fixed(0.3, 5), max_line=max_line)
    parser.add_many(some)
    assert sum(row.count for row in parser.templates()) + parser.forgotten == len(some)
    assert all(len(text) <= max_line for row in parser.templates() for text in row.examples)
