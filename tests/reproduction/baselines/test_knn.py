import numpy as np
import pytest

from reproduction.baselines import KNN


def test_the_nearest_token_answers():
    knn = KNN()
    knn.write(np.eye(3), [[1.0], [2.0], [3.0]])
    assert knn.read([[0.1, 0.9, 0.0]]).tolist() == [[2.0]]


def test_of_equally_near_tokens_the_oldest_answers():
    knn = KNN()
    knn.write([[1.0, 0.0]] * 3, [[1.0], [2.0], [3.0]])
    assert knn.read([[1.0, 0.0]]).tolist() == [[1.0]]


def test_more_neighbours_than_tokens_are_all_tokens():
    knn = KNN(k=5)
    knn.write(np.eye(2), [[1.0], [2.0]])
    assert knn.read([[1.0, 0.0]]).tolist() == [[1.5]]


def test_there_is_at_least_one_neighbour():
    with pytest.raises(ValueError, match="k must be at least 1"):
        KNN(k=0)
