"""Samples are few and evenly spread."""

from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs import LogParser
from distinctkv.logs.history import SAMPLES, History, Sample


def sample(lines):
    return Sample(lines, 0, 0, 0, None, 0.0)


@given(st.lists(st.integers(1, 50), max_size=3000))
def test_samples_are_bounded_and_rise(steps):
    history, lines = History(), 0
    for step in steps:
        lines += step
        if lines >= history.due:
            history.add(sample(lines))
    found = [one.lines for one in history.samples]
    assert len(found) <= SAMPLES
    assert found == sorted(set(found))


def test_a_history_that_is_taken_up_goes_on_at_its_pace():
    history = History([sample(lines) for lines in range(0, 1000, 10)])
    assert history.due == 1000


def test_a_parser_without_a_limit_has_no_budget():
    parser = LogParser()
    parser.add("door 7 opened")
    assert Sample.of(parser)[:5] == (1, 1, 1, 1, None)
