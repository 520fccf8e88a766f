import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.data import Events
from reproduction.studies import windowed
from reproduction.studies.following import MEASURES, follow


@pytest.fixture
def events():
    """Two windows of the 25 have events: sky twice; then apple, sky and apple."""
    items, times = np.array([0, 0, 1, 0, 1]), np.array([0, 1, 98, 99, 100])
    return Events(items, items, times, ("sky", "apple"), ("blue", "red"), "by hand")


def test_demand_counts_tokens_and_distinct_items(events):
    assert windowed.demand(events) == ((2, 1), (3, 2))


def test_a_window_asks_for_each_of_its_items_once(events, seed):
    first, second = windowed.draw(events, seed, width=8, noise=0.0)
    assert first.answers.tolist() == [0]
    assert second.answers.tolist() == [0, 1]
    assert second.values.argmax(axis=1).tolist() == [1, 0, 1]


def test_an_item_has_one_direction_in_all_windows(events, seed):
    first, second = windowed.draw(events, seed, width=8, noise=0.0)
    assert (first.keys[0] == second.keys[1]).all()
    assert (first.queries[0] == second.queries[0]).all()


def test_slots_are_counted_after_every_step_and_at_the_end_of_a_window(events, seed):
    phases = windowed.draw(events, seed, width=8, noise=0.0)
    trace = follow(Cache(Concentration.fixed(0.1)), phases, step=2)
    assert trace.slots.tolist() == [1, 2, 2]
    assert trace.ends == (0, 2)
    assert trace.recall.tolist() == [1, 1]


@pytest.mark.parametrize("step", [1, 2, 100])
def test_the_step_does_not_change_what_is_recalled(events, seed, step):
    phases = windowed.draw(events, seed, width=8, noise=0.0)
    trace = follow(Cache(Concentration.fixed(0.1, 1)), phases, step)
    assert MEASURES["recall"](trace) == 0.75
    assert MEASURES["phase end"](trace) == 1
