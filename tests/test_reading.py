"""A read is eq. 3 over the slots, at any theta and however far apart the slots lie."""

from fractions import Fraction

import numpy as np
import pytest

from distinctkv import Cache, Concentration, Merge
from distinctkv.rule import read, unit


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("theta", [1e-310, 1e-3, 0.05, 2.0, 1e300])
def test_a_read_is_the_rule_read(rng, metric, theta):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    cache = Cache(Concentration.fixed(0.01), metric=metric, merge=Merge(value="mean"))
    cache.write(np.concatenate([keys, keys[:9]]), np.concatenate([values, values[:9]]))
    queries = rng.standard_normal((5, 6))
    rows = unit(queries) if metric == "cosine" else queries
    table = cache.slots
    if theta > 1e-300:
        for weight, answers in (
            (1.0, cache.read(queries, theta)),
            (table.count, cache.read_mass(queries, theta)),
        ):
            want = [read(row, table.keys, table.values, theta, weight) for row in rows]
            np.testing.assert_allclose(answers, want, atol=1e-4)
    else:
        nearest = cache.nearest(queries)[0]
        np.testing.assert_allclose(cache.read(queries, theta), table.values[nearest])


def test_a_euclidean_read_far_from_the_origin_is_the_read_near_it(rng):
    keys, values = 8.0 * rng.integers(0, 5, (60, 3)), rng.standard_normal((60, 2))
    near, far = (Cache(Concentration.fixed(1.0), metric="euclidean") for _ in range(2))
    near.write(keys, values)
    far.write(keys + 2**24, values)
    queries = keys[:9] + 8.0
    want = near.read(queries, theta=50.0)
    np.testing.assert_allclose(far.read(queries + 2**24, theta=50.0), want, atol=1e-5)


@pytest.mark.parametrize("far", [1e8, 1e10, 9e14])
def test_a_slot_far_away_does_not_change_what_is_read_of_the_others(rng, far):
    keys, values = rng.integers(0, 5, (30, 3)), rng.standard_normal((33, 2))
    keys = np.concatenate([keys, np.full((3, 3), far) + far * 1e-6 * np.eye(3)])
    cache = Cache(Concentration.fixed(0.1), metric="euclidean")
    cache.write(keys, values)
    queries = np.concatenate([keys[:9] + 0.4, keys[-3:]])
    rows, table = queries.astype(np.float32), cache.slots
    want = [read(row, table.keys, table.values, 0.05) for row in rows]
    np.testing.assert_allclose(cache.read(queries), want, atol=1e-9)


def test_the_sharpest_read_tells_slots_apart_that_differ_in_the_last_bit(rng):
    keys = unit(1 + 1e-7 * rng.standard_normal((50, 8)))
    cache = Cache(Concentration.fixed(0.0))
    cache.write(keys, np.arange(50))
    ids = cache.nearest(keys)[0]
    assert cache.read(keys, theta=1e-20).tolist() == cache.slots.values[ids].tolist()


def test_a_label_read_of_many_queries_is_that_of_each(rng):
    keys, labels = rng.standard_normal((300, 16)), rng.integers(0, 200, 300)
    cache = Cache(Concentration.fixed(0.05))
    cache.write(keys, labels)
    assert cache.read(np.tile(keys, (60, 1))).tolist() == np.tile(labels, 60).tolist()


def test_a_fraction_is_a_theta(rng):
    cache = Cache(Concentration.fixed(0.1))
    cache.write(rng.standard_normal((9, 4)), np.arange(9.0))
    queries = rng.standard_normal((5, 4))
    assert np.array_equal(cache.read(queries, Fraction(1, 4)), cache.read(queries, 0.25))
