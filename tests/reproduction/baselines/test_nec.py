import numpy as np
import pytest

from reproduction.baselines import NEC


def test_an_exact_repeat_moves_its_value_and_opens_nothing():
    dictionary = NEC(budget=4, rate=0.25)
    dictionary.write(np.eye(2)[[0, 1, 0]], [[0.0], [5.0], [4.0]])
    assert len(dictionary) == 2
    assert dictionary.read(np.eye(2)).tolist() == [[1.0], [5.0]]


def test_a_noisy_repeat_opens_a_slot():
    dictionary = NEC(budget=4)
    assert dictionary.write([[1.0, 0.0], [1.0, 0.01]], [[1.0], [1.0]]).tolist() == [0, 1]


def test_the_least_recently_used_leaves():
    dictionary = NEC(budget=2, k=1)
    ids = dictionary.write(np.eye(3)[[0, 1, 0, 2]], [[1.0], [2.0], [1.0], [3.0]])
    assert ids.tolist() == [0, 1, 0, 1]
    assert dictionary.read(np.eye(3)[[0, 2]]).tolist() == [[1.0], [3.0]]


def test_a_slot_near_a_written_key_counts_as_used():
    dictionary = NEC(budget=3, k=1)
    near_first = [0.99, 0.1, 0.0, 0.0]
    keys = [*np.eye(4)[:2], near_first, np.eye(4)[3]]
    assert dictionary.write(keys, np.ones((4, 1))).tolist() == [0, 1, 2, 1]


def test_a_neighbour_weighs_by_its_inverse_distance():
    dictionary = NEC(budget=2, k=2, delta=0.5)
    dictionary.write(np.eye(2), [[1.0], [0.0]])
    # Squared distances 0 and 2, so weights 2 and .4.
    assert dictionary.read([[1.0, 0.0]])[0, 0] == pytest.approx(2 / 2.4)


@pytest.mark.parametrize(
    "wrong", [{"budget": 0}, {"budget": 4, "k": 0}, {"budget": 4, "rate": 0.0}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        NEC(**wrong)
