"""Laws of the log parser, for any lines."""

import tempfile
from operator import attrgetter
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from distinctkv import Concentration
from distinctkv.logs import LogParser, templates
from distinctkv.logs.parser import LineCache
from tests.logs.strategies import any_line, hard_line, logs


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


def sizes(parser):
    return parser.seen, parser.n_variants, parser.forgotten, parser.temperature


def variants_of(parser):
    """All that is known of the variants but their templates."""
    fields = attrgetter(
        *("key", "rendering", "count", "first_seen", "last_seen", "usage", "collapsed")
    )
    return [fields(variant) for variant in parser._templates.variants.values()]


def told(match):
    return match.id, match.template, match.parameters, match.novelty, match.opened, match.changed


def journey(parser):
    with tempfile.TemporaryDirectory() as folder:
        parser.save(Path(folder) / "state")
        return LogParser.load(Path(folder) / "state")


policies = st.sampled_from(
    [None, *(Concentration.fixed(0.3, n) for n in (3, 8)), Concentration.surprise(0.3, 2, 20)]
)


any_lines = st.lists(hard_line | any_line, max_size=40)


@given(any_lines, policies)
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
    parted = parser.n_opened - sum(match.opened for match in matches)
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


@settings(max_examples=settings().max_examples // 2)
@given(logs(), policies, st.sampled_from([2, 8, 64]), st.data())
def test_when_templates_are_asked_for_does_not_matter(lines, policy, settled, data):
    with patch.object(templates, "MAX_VARIANTS", settled):
        asked, other = LogParser(policy), LogParser(policy)
        for line in lines:
            asked.add(line)
            other.add(line)
            assert sizes(asked) == sizes(other)
            if data.draw(st.integers(0, 9)) == 0:
                asked.templates()
        assert variants_of(asked) == variants_of(other)
        assert rows(asked) == rows(other)


@settings(max_examples=settings().max_examples // 2)
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


@settings(max_examples=settings().max_examples // 2)
@given(logs(), policies, st.integers(0, 100), st.sampled_from([2, 6, 64]), st.booleans())
def test_a_saved_parser_goes_on_as_if_never_stopped(lines, policy, stop, settled, asked):
    with patch.object(templates, "MAX_VARIANTS", settled):
        never, stopped = (parsed(lines[:stop], policy)[0] for _ in range(2))
        if asked:
            assert never.templates() == stopped.templates()
        loaded = journey(stopped)
        for line in lines[stop:]:
            answer = told(never.add(line))
            assert told(stopped.add(line)) == answer
            assert told(loaded.add(line)) == answer
        assert variants_of(loaded) == variants_of(stopped) == variants_of(never)
        assert sizes(loaded) == sizes(stopped) == sizes(never)
        assert loaded.templates() == stopped.templates() == never.templates()


@given(logs(), st.integers(1, 6), st.sampled_from([0.0, 10.0]))
def test_variants_never_exceed_the_budget(lines, base, gain):
    parser = LogParser(Concentration.surprise(0.3, base=base, gain=gain))
    for line in lines:
        parser.add(line)
        assert parser.n_variants <= max(1, parser.budget)
        assert 0 <= parser.temperature <= 1


@given(logs(), st.integers(1, 8))
def test_a_line_goes_by_its_id_when_its_values_are_no_longer_kept(lines, kept):
    with patch.object(templates, "MAX_VARIANTS", kept):
        parser = LogParser()
        matches = [parser.add(line) for line in lines]
        assert sum(row.count for row in parser.templates()) == len(lines)
        found = [parser.match(line).id for line in lines]
    now = [parser.resolve(match.id) for match in matches]
    assert None not in now
    parted = parser.n_opened - sum(match.opened for match in matches)
    assert parted or now == found


@given(logs(), st.integers(1, 8))
def test_a_line_found_without_its_new_words_is_where_it_was(lines, kept):
    with patch.object(templates, "MAX_VARIANTS", kept):
        found = parsed(lines)[0]
        with patch.object(LineCache, "find_blanked", lambda *_: None):
            slow = parsed(lines)[0]
    assert variants_of(found) == variants_of(slow)
    assert rows(found) == rows(slow)


@given(any_lines, any_lines)
def test_a_parser_absorbs_any_other(ours, theirs):
    parser = parsed(ours)[0]
    parser.absorb(parsed(theirs)[0])
    assert texts(parser) == texts(parsed(ours + theirs)[0])


@given(any_lines)
def test_ids_stay_good_and_any_parser_can_be_saved(lines):
    parser = LogParser()
    ids = [parser.add(line).id for line in lines]
    found = parser.templates()
    assert journey(parser).templates() == found
    assert [parser.resolve(number) for number in ids] == [parser.match(line).id for line in lines]
    assert {parser.resolve(number) for number in ids} == {row.id for row in found}


@given(any_lines, st.integers(1, 40))
def test_a_short_limit_cuts_and_loses_nothing(lines, max_line):
    parser = LogParser(Concentration.fixed(0.3, 5), max_line=max_line)
    parser.add_many(lines)
    assert sum(row.count for row in parser.templates()) + parser.forgotten == len(lines)
    assert all(len(text) <= max_line for row in parser.templates() for text in row.examples)


def test_the_order_does_not_matter_where_a_name_is_also_a_month():
    pairs = ("Ann Bob", "Cas Dee", "Eve Fay", "Gil Hal", "May Ida")
    lines = [
        '{{"msg": "user {} sent the key of the door to {} again"}}'.format(*pair.split())
        for pair in pairs
    ]
    assert texts(parsed(lines)[0]) == texts(parsed(lines[::-1])[0])
