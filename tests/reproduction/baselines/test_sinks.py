import numpy as np
import pytest

from reproduction.baselines import Attention, Recency, Sinks


def test_the_first_and_the_last_tokens_are_read(rng):
    keys, values = rng.standard_normal((20, 6)), rng.standard_normal((20, 3))
    window, attention = Sinks(budget=7, sinks=2), Attention()
    window.write(keys, values)
    attention.write(keys[[0, 1, *range(15, 20)]], values[[0, 1, *range(15, 20)]])
    np.testing.assert_array_equal(window.read(keys), attention.read(keys))


def test_a_short_stream_is_kept_whole(rng):
    window = Sinks(budget=7)
    window.write(rng.standard_normal((6, 4)), np.ones((6, 1)))
    assert len(window) == 6


def test_without_sinks_it_is_a_sliding_window(rng):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    window, recency = Sinks(budget=9, sinks=0), Recency(budget=9)
    window.write(keys, values)
    recency.write(keys, values)
    np.testing.assert_array_equal(window.read(keys), recency.read(keys))


def test_four_tokens_are_sinks_unless_told():
    assert Sinks(budget=64).sinks == 4


def test_a_small_budget_leaves_room_for_the_last_token():
    assert [Sinks(budget).sinks for budget in (1, 3, 5)] == [0, 2, 4]


@pytest.mark.parametrize(
    "wrong", [{"budget": 0}, {"budget": 4, "sinks": 4}, {"budget": 8, "sinks": -1}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Sinks(**wrong)
