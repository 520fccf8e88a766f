"""Every engine against the reference: ids, keys, values, usage, counters, temperature."""

import importlib.util
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Cache, Concentration, Merge
from distinctkv.engines import blocked, screened
from distinctkv.rule import unit
from tests.reference import assert_same, follow, write_cut
from tests.strategies import METRICS, concentrations, cuts, merges, streams, taus

MISSING = importlib.util.find_spec("numba") is None
COMPILED = pytest.param("compiled", marks=pytest.mark.skipif(MISSING, reason="numba is absent"))
SEQUENTIAL = ["sequential", COMPILED]


def run(engine, concentration, merge, metric, stream, places):
    values = stream.labels if merge.value == "counts" else stream.vectors
    cache = Cache(concentration, merge=merge, metric=metric, engine=engine)
    ids = write_cut(cache, stream.keys, values, places)
    rule, want = follow(cache, stream.keys, values.tolist() if merge.value == "counts" else values)
    assert ids.tolist() == want
    assert_same(cache, rule)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("engine", SEQUENTIAL)
@given(concentrations(), merges(), streams(), st.data())
def test_a_sequential_engine_is_the_rule(engine, metric, concentration, merge, stream, data):
    places = data.draw(cuts(len(stream.keys)))
    run(engine, concentration, merge, metric, stream, places)


@pytest.mark.parametrize("metric", METRICS)
@given(taus(), streams(), st.sampled_from(["first", "last", "mean", "counts"]), st.data())
def test_the_blocked_engine_is_the_rule(metric, tau, stream, value, data):
    places = data.draw(cuts(len(stream.keys)))
    run("blocked", Concentration.fixed(tau), Merge("first", value), metric, stream, places)


@contextmanager
def eager_prefilter():
    """A prefilter from a few slots on, whether it pays or not."""
    settings = {"MIN_SLOTS": 2, "MAX_COST": np.inf, "CHUNK": 16, "CELLS": 64}
    with ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(patch.object(screened, name, value))
        yield


@given(taus(), streams(), st.sampled_from(["first", "last", "mean", "counts"]), st.data())
def test_the_screened_engine_is_the_rule(tau, stream, value, data):
    places = data.draw(cuts(len(stream.keys)))
    with eager_prefilter():
        run("screened", Concentration.fixed(tau), Merge("first", value), "cosine", stream, places)


@pytest.mark.parametrize("engine", ["screened", "auto"])
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4])
def test_a_long_stream_of_distinct_items_is_still_the_rule(rng, engine, noise):
    items = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 64))
    keys = items[rng.integers(0, 2000, 2000)] + noise * rng.standard_normal((2000, 64))
    cache = Cache(Concentration.fixed(0.05), engine=engine)
    with patch.object(screened, "MIN_PAIRS", 1 << 18):
        ids = write_cut(cache, keys, None, [1800, *range(1900, 1950), 1960])
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("noise", [0.0, 0.25, 0.7])
def test_a_long_stream_fills_every_tier_and_is_still_the_rule(rng, metric, noise):
    things = rng.standard_normal((500, 24)) / np.sqrt(24)
    popular = rng.zipf(1.2, 3000) % 500
    keys = things[popular] + noise / np.sqrt(24) * rng.standard_normal((3000, 24))
    cache = Cache(Concentration.fixed(0.4), metric=metric)
    with patch.object(blocked, "TIERS", (8, 32, 128)), patch.object(blocked, "CHUNK", 256):
        ids = cache.write(keys)
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)


@pytest.mark.parametrize("engine", SEQUENTIAL)
@pytest.mark.parametrize("budget", [5, 64, 400])
def test_a_long_stream_under_a_budget_is_still_the_rule(rng, engine, budget):
    things = rng.standard_normal((500, 16))
    keys = things[rng.zipf(1.3, 3000) % 500] + 0.1 * rng.standard_normal((3000, 16))
    cache = Cache(Concentration.surprise(base=budget, gain=budget), engine=engine)
    ids = cache.write(keys)
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)


@pytest.mark.parametrize("engine", ["blocked", *SEQUENTIAL])
@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e-22, 1e-21, 1e-3, 1e12])
def test_distances_of_any_scale_are_the_rule(rng, engine, scale):
    things = rng.standard_normal((20, 8))[rng.integers(0, 20, 300)]
    keys = scale * (things + 0.7 * rng.standard_normal((300, 8)))
    cache = Cache(Concentration.fixed(8 * scale * scale), metric="euclidean", engine=engine)
    assert cache.write(keys).tolist() == follow(cache, keys)[1]


def moving(engine):
    concentration, merge = Concentration.fixed(1.0), Merge(key="ema", pace=1.0)
    return Cache(concentration, merge=merge, metric="euclidean", engine=engine)


def wandering(rng):
    """One goes out and comes back, one stands as far on the other side; last a key between them."""
    away = np.arange(0, 2, 0.3)[:, None] * unit(rng.random(32))
    return np.concatenate([away, -away[:4, ::-1], away[:2:-1], 1e-9 * rng.random((1, 32))])


@pytest.mark.parametrize("engine", SEQUENTIAL)
def test_keys_that_moved_far_from_where_they_opened_are_still_the_rule(rng, engine):
    for keys in (wandering(rng) for _ in range(40)):
        cache = moving(engine)
        assert write_cut(cache, keys, None, [len(keys) - 1]).tolist() == follow(cache, keys)[1]


@pytest.mark.parametrize("engine", SEQUENTIAL)
def test_keys_that_moved_far_by_absorbing_are_still_the_rule(rng, engine):
    for keys in (wandering(rng) for _ in range(40)):
        cache = moving(engine)
        for key in keys[:-1]:
            one = moving(engine)
            one.write(key)
            cache.absorb(one)
        assert cache.write(keys[-1]).tolist() == follow(cache, keys)[1][-1:]


def test_one_far_key_does_not_change_what_the_others_do(rng):
    near = rng.standard_normal((400, 4))
    keys = np.concatenate([near[:50], [[1e9, 0, 0, 0]], near[50:], [[1e9, 1, 0, 0]]])
    cache = Cache(Concentration.fixed(0.3), metric="euclidean")
    assert cache.write(keys).tolist() == follow(cache, keys)[1]


@pytest.mark.parametrize("tau", [1.9, 1.999, 1.999999, 1.9999999])
def test_the_certificate_holds_near_the_largest_tau(rng, tau):
    for _ in range(20):
        keys = rng.standard_normal((40, 2))
        keys = np.concatenate([keys, -keys + 1e-4 * rng.standard_normal((40, 2))])
        cache = Cache(Concentration.fixed(tau))
        ids = np.concatenate([cache.write(part) for part in np.array_split(keys, 7)])
        assert ids.tolist() == follow(cache, keys)[1]


def test_an_endless_tau_keeps_one_slot(rng):
    keys = rng.standard_normal((30, 3))
    cache = Cache(Concentration.fixed(np.inf), metric="euclidean")
    assert cache.write(keys).tolist() == follow(cache, keys)[1] == [0] * 30


def test_a_budget_that_is_not_reached_is_the_rule_too(rng):
    keys = rng.standard_normal((300, 6))[rng.integers(0, 300, 2000)]
    cache = Cache(Concentration.fixed(0.2, budget=250))
    ids = np.concatenate([cache.write(part) for part in np.array_split(keys, 11)])
    assert ids.tolist() == follow(cache, keys)[1]
    assert_same(cache, follow(cache, keys)[0], values=False)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e7])
def test_distances_far_from_the_origin_are_still_the_rule(rng, offset):
    keys = rng.integers(0, 4, (400, 3)) + offset
    cache = Cache(Concentration.fixed(1.0), metric="euclidean")
    assert cache.write(keys).tolist() == follow(cache, keys)[1]


def test_a_tie_goes_to_the_oldest_slot_after_rows_were_put_in_order_of_use(rng):
    away = np.eye(400)[rng.permutation(400)]
    stream = np.concatenate([away, *[away[200:]] * 60])  # the younger half is used more
    cache = Cache(Concentration.fixed(0.8))
    cache.write(stream)
    between = np.eye(400)[[0]] + np.eye(400)[[1]]
    young, old = cache.nearest(np.eye(400)[:2])[0]
    assert cache.write(between).tolist() == [min(young, old)]


def test_the_blocked_engine_refuses_a_budget():
    with pytest.raises(ValueError, match=r"no budget.*auto"):
        Cache(Concentration.fixed(0.5, budget=3), engine="blocked")


def test_an_unknown_engine_is_refused_by_name():
    with pytest.raises(ValueError, match="got 'gpu'"):
        Cache(engine="gpu")
