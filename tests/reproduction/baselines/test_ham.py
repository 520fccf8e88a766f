import numpy as np
import pytest

from reproduction.baselines import HAM


def test_a_token_that_the_state_predicts_is_not_kept():
    ham = HAM(error=0.5, rate=1.0)
    assert ham.write(np.eye(2)[[0, 1, 0, 1]], [[1.0], [2.0], [1.0], [2.0]]).tolist() == [
        0,
        1,
        -1,
        -1,
    ]


def test_a_token_whose_value_has_changed_is_kept():
    ham = HAM(error=0.5, rate=1.0)
    assert ham.write([[1.0, 0.0]] * 2, [[1.0], [5.0]]).tolist() == [0, 1]


def test_what_the_state_has_lost_is_kept_again():
    ham = HAM(error=0.5, rate=1.0)
    keys = [[1.0, 0.0], [0.8, 0.6], [1.0, 0.0]]
    assert ham.write(keys, [[1.0], [-1.0], [1.0]]).tolist() == [0, 1, 2]


def test_a_query_near_no_token_is_answered_by_the_state():
    ham = HAM(error=10.0, rate=1.0)
    ham.write(np.eye(3), [[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(ham.read([[0.0, 0.6, 0.8]]), [[3.6]], atol=1e-5)


def test_a_query_near_a_token_is_answered_by_it():
    ham = HAM(error=0.5, rate=0.1, near=0.9)
    ham.write([[1.0, 0.0]], [[1.0]])
    np.testing.assert_allclose(ham.read([[1.0, 0.1], [0.8, 0.6]]), [[1.0], [0.08]], atol=1e-5)


def test_at_a_cosine_of_one_a_repeat_is_answered_by_its_token(rng):
    ham = HAM(error=0.1, near=1.0, theta=1e-3)
    keys, values = rng.standard_normal((50, 7)), np.eye(50)
    ham.write(keys, values)
    np.testing.assert_allclose(ham.read(keys), values, atol=1e-5)


def test_the_state_is_counted():
    ham = HAM(error=10.0)
    ham.write(np.eye(3), np.ones((3, 2)))
    assert (len(ham), ham.nbytes) == (3, 4 * 3 * 2)


@pytest.mark.parametrize("wrong", [{"error": 0.0}, {"rate": 0.0}, {"rate": 2.0}, {"near": 1.5}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        HAM(**wrong)
