"""Times of first and last lines, in bounded memory."""

import json

from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.sightings import COARSE, SPARE, Sightings

BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 99).map(str)), max_size=8),
    max_size=8,
)


@given(BATCHES)
def test_first_and_last_lines_have_their_time(batches):
    seen = Sightings()
    rows = []
    for batch in batches:
        seen.note(len(rows), [number for number, _ in batch], [own for _, own in batch])
        rows += batch
    for wanted in {number for number, own in rows if own}:
        lines = [line for line, (number, own) in enumerate(rows) if number == wanted and own]
        for line in (lines[0], lines[-1]):
            assert seen.time(line) == rows[line][1]


@given(BATCHES)
def test_only_times_of_its_own_lines_are_those_of_a_template(batches):
    seen, start, times = Sightings(), 0, {}
    for batch in batches:
        seen.note(start, [number for number, _ in batch], [own for _, own in batch])
        start += len(batch)
        for number, own in batch:
            times.setdefault(number % 3, []).extend([own] if own else [])
    told = seen.spans(lambda number: number % 3)
    if any(own is None for batch in batches for _, own in batch):
        assert told == {number: (own[0], own[-1]) for number, own in times.items() if own}
    else:
        assert told == {}


@given(BATCHES)
def test_it_can_be_kept_and_taken_up(batches):
    seen = Sightings()
    start = 0
    for batch in batches:
        seen.note(start, [number for number, _ in batch], [own for _, own in batch])
        start += len(batch)
    again = Sightings.restore(json.loads(json.dumps(seen.state())))
    assert [again.time(line) for line in range(start)] == [seen.time(line) for line in range(start)]


def test_another_line_has_the_time_of_its_batch():
    seen = Sightings()
    seen.note(0, [0, 0, 0], ["9:00", "9:01", "9:02"])
    seen.note(3, [0, 0, 0], ["9:03", "9:04", "9:05"])
    assert (seen.time(1), seen.time(4)) == ("9:00", "9:03")


def test_without_times_there_are_none():
    assert Sightings().time(3) == ""


def test_memory_is_bounded():
    seen = Sightings()
    for number in range(2 * COARSE + 2 * SPARE):
        seen.note(number, [number], [str(number)])
    seen.prune(1, lambda number: 0 if number < SPARE else None)
    assert len(seen._first) == len(seen._last) == 1
    assert len(seen._coarse) <= COARSE
    assert (seen.time(0), seen.time(SPARE - 1)) == ("0", str(SPARE - 1))


def test_templates_that_are_held_are_not_pruned():
    seen = Sightings()
    seen.note(0, [*range(SPARE)], ["9:00"] * SPARE)
    seen.prune(0, lambda _: None)
    assert len(seen._first) == SPARE


def test_lines_of_evicted_templates_only_tell_the_time():
    seen = Sightings()
    seen.note(0, [-1, 3, -1], ["9:00", "9:01", "9:02"])
    again = Sightings.restore(json.loads(json.dumps(seen.state())))
    assert [again.time(line) for line in range(3)] == ["9:00", "9:01", "9:00"]
