import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Attention, InfFormer, Kanerva, Titans
from reproduction.baselines.learned_states import (
    addresses,
    forward,
    gradient,
    middles,
    places,
    refit,
    waves,
)


def test_the_mean_is_ridge_regression_on_addresses(rng):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    memory = Kanerva(n_rows=12, noise=0.2, seed=3)
    memory.write(keys, values)
    w = addresses(keys, places(6, 12, 3))
    table = np.linalg.solve(w.T @ w + 0.2 * np.eye(12), w.T @ values)
    np.testing.assert_allclose(memory.read(keys), w @ table, atol=1e-5)


@pytest.mark.parametrize("times", [1, 2, 9, 100])
def test_belief_follows_the_number_of_times_a_thing_was_seen(times):
    memory = Kanerva(noise=0.5)
    memory.write([[1.0, 0.0]] * times, [[1.0]] * times)
    np.testing.assert_allclose(memory.read([[1.0, 0.0]]), [[times / (times + 0.5)]], rtol=1e-5)


def test_an_address_is_positive_and_of_length_one(rng, seed):
    found = addresses(rng.standard_normal((30, 8)), places(8, 64, seed))
    assert found.min() >= 0
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_a_key_that_no_place_is_near_is_stored_nowhere():
    place = places(4, n_rows=1, seed=0)
    memory = Kanerva(n_rows=1, seed=0)
    memory.write(-place, [[1.0]])
    assert memory.read(-place).tolist() == [[0.0]]


def test_the_seed_decides_the_places():
    one, same, other = (places(6, 10, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_fit_is_ridge_regression_on_the_squeezed_past_and_the_block(rng):
    before, block = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    past, new = refit(5, 10, 4, contraction=0.6, penalty=0.3)
    seen = np.concatenate([waves(middles(10), 5) @ before, block, np.zeros((5, 3))])
    times = np.concatenate([0.6 * middles(10), 0.6 + 0.4 * middles(4)])
    rows = np.concatenate([waves(times, 5), np.sqrt(0.3) * np.eye(5)])
    expected = np.linalg.lstsq(rows, seen)[0]
    np.testing.assert_allclose(past @ before + new @ block, expected, atol=1e-9)


def test_waves_are_orthogonal_on_an_even_grid():
    at = waves(middles(12), 12)
    np.testing.assert_allclose(at.T @ at, np.diag([12.0] + [6.0] * 11), atol=1e-9)


def test_a_curve_that_never_changes_survives_the_squeeze():
    flat = np.array([[3.0], [0.0], [0.0], [0.0]])
    past, new = refit(4, 8, 4, contraction=0.5, penalty=1e-9)
    np.testing.assert_allclose(past @ flat + new @ np.full((4, 1), 3.0), flat, atol=1e-6)


def test_tokens_that_wait_are_read_by_attention(rng):
    keys, values = rng.standard_normal((7, 6)), rng.standard_normal((7, 3))
    curve, attention = InfFormer(block=8, theta=0.1), Attention(theta=0.1)
    curve.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(curve.read(keys), attention.read(keys), atol=1e-6)


def test_a_stream_of_one_thing_stays_that_thing():
    curve = InfFormer(n_waves=6, block=4, penalty=1e-6)
    curve.write([[0.6, 0.8]] * 400, [[5.0]] * 400)
    np.testing.assert_allclose(curve.read([[0.6, 0.8]]), [[5.0]], atol=1e-3)


def test_the_past_is_squeezed_out_in_the_end():
    curve = InfFormer(n_waves=6, block=4, contraction=0.5)
    curve.write(np.eye(2)[[0] * 8 + [1] * 80], [[1.0]] * 8 + [[0.0]] * 80)
    assert abs(curve.read([[1.0, 0.0]])[0, 0]) < 0.1


def test_with_room_in_proportion_it_is_not():
    curve = InfFormer(n_waves=24, block=4, contraction=None)
    curve.write(np.eye(2)[[0] * 8 + [1] * 80], [[1.0]] * 8 + [[0.0]] * 80)
    assert curve.read([[1.0, 0.0]])[0, 0] > 0.5


def test_the_gradient_equals_finite_differences(rng):
    weights, key, value = (
        rng.standard_normal((5, 7)),
        rng.standard_normal(4),
        rng.standard_normal(3),
    )
    expected = np.empty_like(weights)
    for place in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[place] = 1e-6
        up, down = (((forward(weights + s, key)[1] - value) ** 2).sum() / 2 for s in (step, -step))
        expected[place] = (up - down) / 2e-6
    np.testing.assert_allclose(gradient(weights, key, value), expected, atol=1e-6)


def test_each_token_is_a_step_with_momentum_and_decay(rng):
    keys, values = unit(rng.standard_normal((90, 4))), rng.standard_normal((90, 3))
    memory = Titans(hidden=5, step=0.2, momentum=0.6, decay=0.99, seed=1)
    memory.write(keys, values)
    drawn = np.random.default_rng(1).standard_normal((5, 4))
    weights, surprise = np.hstack([drawn, np.zeros((5, 3))]), np.zeros((5, 7))
    for key, value in zip(keys, values, strict=True):
        surprise = 0.6 * surprise - 0.2 * gradient(weights, key, value)
        weights = 0.99 * weights + surprise
    np.testing.assert_allclose(memory.read(keys), forward(weights, keys)[1], atol=1e-4)


def test_what_is_repeated_is_learned(rng):
    keys, values = rng.standard_normal((10, 8)), rng.standard_normal((10, 3))
    memory = Titans(step=0.5)
    memory.write(np.tile(keys, (200, 1)), np.tile(values, (200, 1)))
    np.testing.assert_allclose(memory.read(keys), values, atol=0.05)


def test_decay_forgets_what_is_not_seen_again():
    firm, weak = Titans(), Titans(decay=0.9)
    for memory in (firm, weak):
        memory.write(np.eye(2)[[0] * 20 + [1] * 50], [[1.0]] * 20 + [[0.0]] * 50)
    assert abs(weak.read([[1.0, 0.0]])[0, 0]) < 0.1 < firm.read([[1.0, 0.0]])[0, 0]


def test_weights_that_diverged_are_refused_with_the_way_out(rng):
    memory = Titans(step=100.0)
    memory.write(rng.standard_normal((200, 8)), rng.standard_normal((200, 3)))
    with pytest.raises(ValueError, match="take a smaller step"):
        memory.read(np.ones((1, 8)))
