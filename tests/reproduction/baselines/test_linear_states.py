import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import (
    Based,
    DecayedSuperposition,
    Delta,
    Fourier,
    GatedDelta,
    Ridge,
    Superposition,
)
from reproduction.baselines.linear_states import features, powers, projections, waves


def test_the_state_is_the_sum_of_outer_products(rng):
    keys, values = np.eye(4), rng.standard_normal((4, 3))
    state = Superposition()
    state.write(keys, values)
    np.testing.assert_allclose(state.read(keys), values, rtol=1e-6)


def test_the_closed_form_agrees_with_the_plain_loop_decay(rng):
    keys, values = rng.standard_normal((150, 6)), rng.standard_normal((150, 3))
    state, expected = DecayedSuperposition(decay=0.97), np.zeros((6, 3))
    state.write(keys, values)
    for key, value in zip(keys, values, strict=True):
        expected = 0.97 * expected + np.outer(key / np.linalg.norm(key), value)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_without_decay_it_is_the_plain_sum(rng):
    keys, values = rng.standard_normal((90, 6)), rng.standard_normal((90, 3))
    decayed, plain = DecayedSuperposition(decay=1.0), Superposition()
    decayed.write(keys, values)
    plain.write(keys, values)
    np.testing.assert_allclose(decayed.read(keys), plain.read(keys), atol=1e-5)


@pytest.mark.parametrize("decay", [1.0, 0.97, 0.01])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_closed_form_agrees_with_the_plain_loop_delta(rng, rate, decay):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    state, expected = GatedDelta(rate, decay), np.zeros((6, 3))
    state.write(keys, values)
    for key, value in zip(keys, values, strict=True):
        expected *= decay
        expected += rate * np.outer(key, value - key @ expected)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_at_a_rate_of_one_the_last_value_counts():
    state = Delta(rate=1.0)
    state.write([[0.6, 0.8]] * 3, [[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(state.read([[0.6, 0.8]]), [[3.0]], rtol=1e-6)


def test_an_overwrite_leaves_other_directions_alone():
    state = Delta(rate=1.0)
    state.write(np.eye(3)[[0, 1, 1]], [[1.0], [2.0], [5.0]])
    np.testing.assert_allclose(state.read(np.eye(3)), [[1.0], [5.0], [0.0]], atol=1e-6)


def test_without_decay_the_gate_is_open(rng):
    keys, values = rng.standard_normal((70, 6)), rng.standard_normal((70, 3))
    gated, plain = GatedDelta(rate=0.2, decay=1.0), Delta(rate=0.2)
    gated.write(keys, values)
    plain.write(keys, values)
    np.testing.assert_array_equal(gated.read(keys), plain.read(keys))


def ridge_stream(rng):
    return unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))


def test_it_is_the_closed_form_of_ridge_regression(rng):
    keys, values = ridge_stream(rng)
    state = Ridge(penalty=0.3)
    state.write(keys, values)
    # The penalty as six more tokens: sqrt(.3) times each axis, with value zero.
    rows = np.concatenate([keys, np.sqrt(0.3) * np.eye(6)])
    expected = np.linalg.lstsq(rows, np.concatenate([values, np.zeros((6, 3))]))[0]
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_it_is_recursive_least_squares(rng):
    keys, values = ridge_stream(rng)
    state = Ridge(penalty=0.3)
    state.write(keys, values)
    inverse, weights = np.eye(6) / 0.3, np.zeros((6, 3))
    for key, value in zip(keys, values, strict=True):
        gain = inverse @ key / (1 + key @ inverse @ key)
        weights += np.outer(gain, value - key @ weights)
        inverse -= np.outer(gain, key @ inverse)
    np.testing.assert_allclose(state.read(np.eye(6)), weights, atol=1e-5)


def test_a_decay_weighs_old_tokens_less(rng):
    keys, values = ridge_stream(rng)
    state = Ridge(penalty=0.3, decay=0.95)
    state.write(keys, values)
    weighed = 0.95 ** np.arange(150)[::-1, None] * keys
    expected = np.linalg.solve(weighed.T @ keys + 0.3 * np.eye(6), weighed.T @ values)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


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


def test_products_of_features_approach_a_gaussian_of_the_distance(rng, seed):
    rows = unit(rng.standard_normal((20, 6)))
    found = waves(rows, projections(6, n_features=20_000, scale=1.5, seed=seed))
    squared = 2 - 2 * rows @ rows.T
    np.testing.assert_allclose(found @ found.T, np.exp(-(1.5**2) * squared / 2), atol=0.05)


def test_features_have_length_one(rng, seed):
    found = waves(rng.standard_normal((20, 6)), projections(6, 10, 3.0, seed))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_the_read_is_a_sum_over_tokens(rng):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    state = Fourier(n_features=20, scale=2.0, seed=1)
    state.write(keys, values)
    found = waves(keys, projections(6, n_features=20, scale=2.0, seed=1))
    np.testing.assert_allclose(state.read(keys), found @ found.T @ values, atol=1e-4)


def test_the_seed_decides_the_features():
    one, same, other = (projections(6, 10, 3.0, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_with_its_projections_the_default_holds_the_bytes_of_a_slot_for_each_item():
    state = Fourier()
    state.write(np.eye(32), np.ones((32, 16)))
    assert state.nbytes == 4 * 64 * (32 + 1)
