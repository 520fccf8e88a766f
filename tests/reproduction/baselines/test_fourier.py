import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Fourier
from reproduction.baselines.fourier import projections, waves


def test_products_of_features_approach_a_gaussian_of_the_distance(rng, seed):
    rows = unit(rng.standard_normal((20, 6)))
    found = waves(rows, projections(6, n_features=20_000, scale=1.5, seed=seed))
    squared = 2 - 2 * rows @ rows.T
    np.testing.assert_allclose(found @ found.T, np.exp(-(1.5**2) * squared / 2), atol=0.05)


def test_features_have_length_one(rng, seed):
    found = waves(rng.standard_normal((20, 6)), projections(6, 10, 3.0, seed))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)


def test_the_read_is_a_sum_over_tokens(rng):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    state = Fourier(n_features=20, scale=2.0, seed=1)
    state.write(keys, values)
    found = waves(keys, projections(6, n_features=20, scale=2.0, seed=1))
    np.testing.assert_allclose(state.read(keys), found @ found.T @ values, atol=1e-4)


def test_the_seed_decides_the_features():
    one, same, other = (projections(6, 10, 3.0, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_with_its_projections_the_default_holds_the_bytes_of_a_slot_for_each_item():
    state = Fourier()
    state.write(np.eye(32), np.ones((32, 16)))
    assert state.nbytes == 4 * 64 * (32 + 1)


@pytest.mark.parametrize("wrong", [{"n_features": 7}, {"n_features": 0}, {"scale": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Fourier(**wrong)
