import numpy as np
import pytest

from reproduction.baselines import KNN, Attention


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
