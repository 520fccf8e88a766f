import numpy as np
import pytest

from reproduction.baselines import KNN, Attention, Hopfield


def test_the_read_is_a_softmax_over_similarities():
    attention = Attention(theta=0.5)
    attention.write(np.eye(2), [[1.0], [0.0]])
    expected = np.exp(2.0) / (np.exp(2.0) + 1)
    assert attention.read([[1.0, 0.0]])[0, 0] == pytest.approx(expected)


def test_class_labels_are_refused_with_the_way_out():
    with pytest.raises(TypeError, match="one-hot"):
        Attention().write(np.eye(2), [0, 1])


def test_the_nearest_token_answers():
    knn = KNN()
    knn.write(np.eye(3), [[1.0], [2.0], [3.0]])
    assert knn.read([[0.1, 0.9, 0.0]]).tolist() == [[2.0]]


def test_of_equally_near_tokens_the_oldest_answers():
    knn = KNN()
    knn.write([[1.0, 0.0]] * 3, [[1.0], [2.0], [3.0]])
    assert knn.read([[1.0, 0.0]]).tolist() == [[1.0]]


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
