"""Every engine against the law: ids, keys, values, usage, counters, temperature, evictions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Cache, Concentration, Merge
from tests.reference import assert_same, follow, write_cut
from tests.strategies import METRICS, concentrations, cuts, merges, streams, taus

pytest.importorskip("numba", reason="the compiled engine needs numba")


def run(engine, concentration, merge, metric, stream, places):
    values = stream.labels if merge.value == "counts" else stream.vectors
    cache = Cache(concentration, merge=merge, metric=metric, engine=engine)
    ids = write_cut(cache, stream.keys, values, places)
    rule, want = follow(cache, stream.keys, values.tolist() if merge.value == "counts" else values)
    assert ids.tolist() == want
    assert_same(cache, rule)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("engine", ["ordered", "compiled"])
@given(concentrations(), merges(), streams(), st.data())
def test_an_ordered_engine_is_the_rule(engine, metric, concentration, merge, stream, data):
    places = data.draw(cuts(len(stream.keys)))
    run(engine, concentration, merge, metric, stream, places)


@pytest.mark.parametrize("metric", METRICS)
@given(taus(), streams(), st.sampled_from(["first", "last", "mean", "counts"]), st.data())
def test_the_blocked_engine_is_the_rule(metric, tau, stream, value, data):
    places = data.draw(cuts(len(stream.keys)))
    run("blocked", Concentration.fixed(tau), Merge("first", value), metric, stream, places)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("noise", [0.0, 0.25, 0.7])
def test_a_long_stream_fills_every_tier_and_is_still_the_rule(rng, metric, noise):
    things = rng.standard_normal((500, 24)) / np.sqrt(24)
    popular = rng.zipf(1.2, 6000) % 500
    keys = things[popular] + noise / np.sqrt(24) * rng.standard_normal((6000, 24))
    cache = Cache(Concentration.fixed(0.4), metric=metric)
    ids = cache.write(keys)
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)


@pytest.mark.parametrize("engine", ["ordered", "compiled"])
@pytest.mark.parametrize("budget", [5, 64, 400])
def test_a_long_stream_under_a_budget_is_still_the_rule(rng, engine, budget):
    things = rng.standard_normal((500, 16))
    keys = things[rng.zipf(1.3, 3000) % 500] + 0.1 * rng.standard_normal((3000, 16))
    cache = Cache(Concentration.surprise(base=budget, gain=budget), engine=engine)
    ids = cache.write(keys)
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)


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
