import numpy as np
import pytest

from reproduction.baselines import KNN, Memorizing, Recency


def test_the_first_in_is_the_first_out():
    queue = Memorizing(budget=2)
    queue.write(np.eye(3), [[1.0], [2.0], [3.0]])
    assert queue.read(np.eye(3)[:1])[0, 0] == pytest.approx(2.5)


def test_one_neighbour_of_all_tokens_is_knn(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    queue, knn = Memorizing(budget=20, k=1), KNN(k=1)
    queue.write(keys, values)
    knn.write(keys, values)
    np.testing.assert_allclose(queue.read(-keys), knn.read(-keys))


def test_all_neighbours_are_a_sliding_window(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    queue, window = Memorizing(budget=6, k=6), Recency(budget=6)
    queue.write(keys, values)
    window.write(keys, values)
    np.testing.assert_allclose(queue.read(keys), window.read(keys))


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"budget": 4, "k": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be at least 1"):
        Memorizing(**wrong)
