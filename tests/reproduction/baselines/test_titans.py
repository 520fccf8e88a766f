import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Titans
from reproduction.baselines.titans import forward, gradient


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


def test_the_first_token_goes_a_part_of_the_way(rng):
    memory, key = Titans(step=0.5), rng.standard_normal((1, 8))
    memory.write(key, [[1.0]])
    assert 0 < memory.read(key)[0, 0] < 1


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


@pytest.mark.parametrize(
    "wrong", [{"hidden": 0}, {"step": 0.0}, {"momentum": 1.0}, {"momentum": -0.1}, {"decay": 0.0}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Titans(**wrong)
