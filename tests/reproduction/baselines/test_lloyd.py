import numpy as np

from reproduction.baselines.lloyd import at_random, lloyd, spread


def test_every_token_is_with_its_nearest_mean(rng):
    keys = rng.standard_normal((60, 3))
    _, groups = lloyd(keys, keys[:5])
    means = np.array([keys[groups == group].mean(axis=0) for group in range(5)])
    gaps = ((keys[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_array_equal(groups, gaps.argmin(axis=1))


def test_a_fit_with_a_slot_for_each_item_leaves_less_over(rng):
    keys = np.repeat(np.eye(4), 3, axis=0) + 0.01 * rng.standard_normal((12, 4))
    apart, _ = lloyd(keys, keys[::3])
    together, _ = lloyd(keys, keys[[0, 3]])
    assert apart < together


def test_the_given_slots_stay_the_callers(rng):
    keys = rng.standard_normal((20, 3))
    slots = keys[:4].copy()
    lloyd(keys, slots)
    np.testing.assert_array_equal(slots, keys[:4])


def test_a_spread_start_takes_each_distinct_token_once(rng):
    keys = np.repeat(np.eye(4), 5, axis=0)
    assert np.unique(spread(keys, 4, rng), axis=0).shape == (4, 4)


def test_a_spread_start_ends_when_every_token_has_a_slot(rng):
    assert len(spread(np.eye(2)[[0, 1, 0, 1]], 4, rng)) == 2


def test_a_random_start_takes_no_token_twice(rng):
    keys = rng.standard_normal((9, 2))
    assert np.unique(at_random(keys, 9, rng), axis=0).shape == (9, 2)
