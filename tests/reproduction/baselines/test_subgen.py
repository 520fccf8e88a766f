import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import Attention, SubGen


def test_a_key_beyond_delta_opens_a_group():
    subgen = SubGen(delta=1.0)
    angles = np.radians([0, 59, 61, 120])
    keys = np.column_stack([np.cos(angles), np.sin(angles)])
    assert subgen.write(keys, np.ones((4, 1))).tolist() == [0, 0, 1, 1]


def test_groups_are_the_slots_of_the_cache_at_the_same_radius(rng):
    keys = rng.standard_normal((80, 6))
    subgen, cache = SubGen(delta=0.8), Cache(Concentration.fixed(tau=0.32))
    np.testing.assert_array_equal(
        subgen.write(keys, np.ones((80, 1))), cache.write(keys, np.ones((80, 1)))
    )


def test_a_repeat_opens_no_group_however_small_delta(rng):
    keys = rng.standard_normal((40, 6))
    ids = SubGen(delta=1e-6).write(np.concatenate([keys, keys]), np.ones((80, 1)))
    assert ids.tolist() == [*range(40), *range(40)]


def test_enough_samples_are_full_attention(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    subgen, attention = SubGen(delta=0.8, samples=20), Attention()
    subgen.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(subgen.read(keys), attention.read(keys))


def test_a_sample_weighs_as_the_tokens_it_stands_for():
    subgen = SubGen(delta=0.5, theta=1.0)
    subgen.write(np.eye(2)[[0, 0, 0, 1]], [[1.0], [1.0], [1.0], [0.0]])
    assert subgen.read([[1.0, 1.0]])[0, 0] == pytest.approx(0.75)


def test_samples_are_drawn_evenly_from_a_group(seed):
    picked = []
    for each in range(seed, seed + 200):
        subgen = SubGen(delta=0.5, seed=each)
        subgen.write(np.ones((10, 2)), np.arange(10.0)[:, None])
        picked.append(subgen.read(np.ones((1, 2)))[0, 0])
    assert np.mean(picked) == pytest.approx(4.5, abs=1.0)
    assert set(picked) == set(range(10))


def test_slots_are_samples():
    subgen = SubGen(delta=0.5, samples=2)
    subgen.write(np.eye(2)[[0, 0, 0, 1]], np.ones((4, 1)))
    assert len(subgen) == 3


@pytest.mark.parametrize("wrong", [{"delta": 0.0}, {"samples": 0}, {"theta": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        SubGen(**wrong)
