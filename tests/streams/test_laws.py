"""Laws of the log parser, for any lines."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Concentration
from distinctkv.streams import LogParser
from distinctkv.streams.parsing import templates
from tests.streams.strategies import any_line, logs


def parsed(lines, concentration=None):
    parser = LogParser(concentration)
    ids = parser.add_many(lines)
    return parser, ids


def texts(parser):
    return sorted((row.template, row.count) for row in parser.templates())


def rows(parser):
    """All that is said of the templates but their ids."""
    return [
        (row.template, row.count, row.first_seen, row.last_seen, row.examples)
        for row in parser.templates()
    ]


policies = st.sampled_from(
    [None, Concentration.fixed(0.3, 3), Concentration.surprise(0.3, base=2, gain=20)]
)


@given(st.lists(any_line, max_size=30), policies)
def test_any_text_is_a_line(lines, policy):
    parser = LogParser(policy)
    for line in lines:
        match = parser.add(line)
        assert isinstance(match.parameters, tuple)
        assert parser.match(line).id == match.id
    assert parser.seen == len(lines)


@given(logs(), policies)
def test_no_line_is_lost_or_counted_twice(lines, policy):
    parser, _ = parsed(lines, policy)
    assert sum(row.count for row in parser.templates()) + parser.forgotten == len(lines)


@given(logs())
def test_a_line_is_found_again_under_its_id(lines):
    parser = LogParser()
    matches = [parser.add(line) for line in lines]
    parser.templates()
    parted = parser.born - sum(match.opened for match in matches)
    now = [parser.resolve(match.id) for match in matches]
    assert parted or now == [parser.match(line).id for line in lines]


@given(logs())
def test_one_by_one_and_all_at_once_are_the_same(lines):
    parser = LogParser()
    for line in lines:
        parser.add(line)
    assert parser.templates() == parsed(lines)[0].templates()


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(lines, random):
    shuffled = random.sample(lines, len(lines))
    assert texts(parsed(shuffled)[0]) == texts(parsed(lines)[0])


@given(logs(), policies, st.sampled_from([2, 8, 64]), st.data())
def test_when_templates_are_asked_for_does_not_matter(lines, policy, kept, data):
    with patch.object(templates, "SETTLED", kept):
        parser = LogParser(policy)
        for line in lines:
            parser.add(line)
            if data.draw(st.integers(0, 9)) == 0:
                parser.templates()
        assert rows(parser) == rows(parsed(lines, policy)[0])


@given(logs(), st.integers(2, 16), st.booleans())
def test_parts_absorbed_are_the_whole(lines, n_parts, dealt):
    size = -(-len(lines) // n_parts)
    parts = [
        lines[part::n_parts] if dealt else lines[part * size : (part + 1) * size]
        for part in range(n_parts)
    ]
    parser = LogParser()
    for part in parts:
        parser.absorb(parsed(part)[0])
    whole = parsed(lines)[0]
    assert texts(parser) == texts(whole)
    assert dealt or rows(parser) == rows(whole)


@given(logs(), policies, st.integers(0, 100))
def test_a_saved_parser_goes_on_as_if_never_stopped(lines, policy, stop):
    parser, _ = parsed(lines[:stop], policy)
    with tempfile.TemporaryDirectory() as folder:
        parser.save(Path(folder) / "state")
        loaded = LogParser.load(Path(folder) / "state")
    assert (loaded.seen, loaded.templates()) == (parser.seen, parser.templates())
    assert list(loaded.add_many(lines[stop:])) == list(parser.add_many(lines[stop:]))
    assert loaded.templates() == parser.templates()
    assert loaded.temperature == pytest.approx(parser.temperature)


@given(logs(), st.integers(1, 6), st.sampled_from([0.0, 10.0]))
def test_leaves_never_exceed_the_budget(lines, base, gain):
    parser = LogParser(Concentration.surprise(0.3, base=base, gain=gain))
    for line in lines:
        parser.add(line)
        assert parser.n_leaves <= max(1, parser.budget)
        assert 0 <= parser.temperature <= 1


@given(logs(), st.integers(1, 8))
def test_a_line_goes_by_its_id_when_its_values_are_no_longer_kept(lines, kept):
    with patch.object(templates, "SETTLED", kept):
        parser = LogParser()
        matches = [parser.add(line) for line in lines]
        assert sum(row.count for row in parser.templates()) == len(lines)
        found = [parser.match(line).id for line in lines]
    now = [parser.resolve(match.id) for match in matches]
    assert None not in now
    parted = parser.born - sum(match.opened for match in matches)
    assert parted or now == found
