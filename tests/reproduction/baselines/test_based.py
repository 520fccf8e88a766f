import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Based
from reproduction.baselines.based import features, powers


def test_the_read_is_attention_with_the_exponential_cut_off(rng):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    state = Based(theta=0.2)
    state.write(keys, values)
    logits = keys @ keys.T / 0.2
    weights = 1 + logits + logits**2 / 2
    expected = weights @ values / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(state.read(keys), expected, atol=1e-5)


def test_features_multiply_to_the_series(rng):
    query, key = rng.standard_normal((2, 5))
    found = features(query[None]) * powers(5, theta=0.7) @ features(key[None]).T
    scaled = query @ key / 0.7
    assert found[0, 0] == pytest.approx(1 + scaled + scaled**2 / 2)


def test_the_read_stays_among_the_values(rng):
    state = Based()
    state.write(rng.standard_normal((40, 6)), rng.uniform(2.0, 3.0, (40, 1)))
    read = state.read(rng.standard_normal((40, 6)))
    assert 2.0 <= read.min() <= read.max() <= 3.0


def test_a_projection_makes_the_state_smaller_and_counts_itself(rng):
    state = Based(width=3)
    state.write(rng.standard_normal((20, 8)), np.ones((20, 2)))
    assert (len(state), state.nbytes) == (10, 4 * (10 * 3 + 8 * 3))


def test_a_projection_wider_than_the_keys_is_none(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    whole, wide = Based(), Based(width=9)
    whole.write(keys, values)
    wide.write(keys, values)
    np.testing.assert_array_equal(wide.read(keys), whole.read(keys))


@pytest.mark.parametrize("wrong", [{"theta": 0.0}, {"width": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Based(**wrong)
