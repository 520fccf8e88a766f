import numpy as np
import pytest

from reproduction.baselines import Attention, Hopfield


def test_one_step_is_full_attention(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    network, attention = Hopfield(steps=1), Attention()
    network.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_array_equal(network.read(keys), attention.read(keys))


def test_each_step_brings_a_query_nearer_to_a_stored_token():
    errors = []
    for steps in (1, 2, 3):
        network = Hopfield(steps=steps, theta=0.2)
        network.write(np.eye(2), [[1.0], [0.0]])
        errors.append(1.0 - network.read([[0.8, 0.6]])[0, 0])
    assert errors[0] > errors[1] > errors[2] > 0


def test_between_two_tokens_it_stays():
    network = Hopfield(steps=5)
    network.write(np.eye(2), [[1.0], [0.0]])
    assert network.read([[1.0, 1.0]])[0, 0] == pytest.approx(0.5)


def test_there_is_at_least_one_step():
    with pytest.raises(ValueError, match="steps must be at least 1"):
        Hopfield(steps=0)
