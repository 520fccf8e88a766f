import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Ridge


def stream(rng):
    return unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))


def test_it_is_the_closed_form_of_ridge_regression(rng):
    keys, values = stream(rng)
    state = Ridge(penalty=0.3)
    state.write(keys, values)
    # The penalty as six more tokens: sqrt(.3) times each axis, with value zero.
    rows = np.concatenate([keys, np.sqrt(0.3) * np.eye(6)])
    expected = np.linalg.lstsq(rows, np.concatenate([values, np.zeros((6, 3))]))[0]
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_it_is_recursive_least_squares(rng):
    keys, values = stream(rng)
    state = Ridge(penalty=0.3)
    state.write(keys, values)
    inverse, weights = np.eye(6) / 0.3, np.zeros((6, 3))
    for key, value in zip(keys, values, strict=True):
        gain = inverse @ key / (1 + key @ inverse @ key)
        weights += np.outer(gain, value - key @ weights)
        inverse -= np.outer(gain, key @ inverse)
    np.testing.assert_allclose(state.read(np.eye(6)), weights, atol=1e-5)


def test_a_decay_weighs_old_tokens_less(rng):
    keys, values = stream(rng)
    state = Ridge(penalty=0.3, decay=0.95)
    state.write(keys, values)
    weighed = 0.95 ** np.arange(150)[::-1, None] * keys
    expected = np.linalg.solve(weighed.T @ keys + 0.3 * np.eye(6), weighed.T @ values)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_a_linear_stream_is_learned(rng):
    keys, true = stream(rng)[0], rng.standard_normal((6, 3))
    state = Ridge(penalty=1e-4)
    state.write(keys, keys @ true)
    np.testing.assert_allclose(state.read(np.eye(6)), true, atol=1e-3)


def test_the_order_of_tokens_plays_no_part(rng):
    keys, values = stream(rng)
    one, other, order = Ridge(), Ridge(), rng.permutation(150)
    one.write(keys, values)
    other.write(keys[order], values[order])
    np.testing.assert_allclose(one.read(keys), other.read(keys), atol=1e-5)


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.inf])
def test_a_penalty_is_above_zero(penalty):
    with pytest.raises(ValueError, match="penalty must be finite and above 0"):
        Ridge(penalty)
