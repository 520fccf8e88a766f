import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Kanerva
from reproduction.baselines.kanerva import addresses, places


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


@pytest.mark.parametrize("wrong", [{"n_rows": 0}, {"noise": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Kanerva(**wrong)
