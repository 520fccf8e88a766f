import numpy as np
import pytest

from reproduction.baselines import Attention


def test_every_token_is_kept(rng):
    attention = Attention()
    attention.write(rng.standard_normal((9, 4)), np.ones((9, 2)))
    attention.write(rng.standard_normal((5, 4)), np.ones((5, 2)))
    assert len(attention) == 14


def test_the_read_is_a_softmax_over_similarities():
    attention = Attention(theta=0.5)
    attention.write(np.eye(2), [[1.0], [0.0]])
    expected = np.exp(2.0) / (np.exp(2.0) + 1)
    assert attention.read([[1.0, 0.0]])[0, 0] == pytest.approx(expected)


@pytest.mark.parametrize("theta", [0.0, -1.0, np.inf])
def test_a_temperature_is_above_zero(theta):
    with pytest.raises(ValueError, match="theta must be finite and above 0"):
        Attention(theta)


def test_class_labels_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match="one-hot"):
        Attention().write(np.eye(2), [0, 1])
