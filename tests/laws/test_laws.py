"""Laws of the rule, for any stream and any policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Cache, Concentration, Merge
from distinctkv.rule import distances, from_distance, unit
from tests.reference import state, write_cut
from tests.strategies import METRICS, concentrations, cuts, merges, pairs, streams, taus

metrics = st.sampled_from(METRICS)


def written(concentration, stream, metric="cosine", merge=None):
    cache = Cache(concentration, metric=metric, merge=merge)
    labels = merge is not None and merge.value == "counts"
    cache.write(stream.keys, stream.labels if labels else stream.vectors)
    return cache


def apart(keys, metric):
    """Novelty of every key from every other."""
    pairs = np.stack([distances(key, keys) for key in keys])
    novelty = np.vectorize(lambda squared: from_distance(squared, metric))(pairs)
    return novelty[~np.eye(len(keys), dtype=bool)]


@given(streams(), taus(), metrics)
def test_slots_are_further_apart_than_tau(stream, tau, metric):
    cache = written(Concentration.fixed(tau), stream, metric)
    assert (apart(cache.slots.keys, metric) > tau).all()


@given(streams(), taus(), metrics)
def test_every_token_is_within_tau_of_its_slot(stream, tau, metric):
    cache = Cache(Concentration.fixed(tau), metric=metric)
    ids = cache.write(stream.keys)
    rows = unit(stream.keys) if metric == "cosine" else stream.keys
    for row, slot in zip(rows.astype(np.float32), cache.slots.keys[ids], strict=True):
        assert from_distance(distances(row, slot[None])[0], metric) <= tau


@given(streams(), taus(), metrics)
def test_writing_a_stream_again_opens_nothing(stream, tau, metric):
    cache = written(Concentration.fixed(tau), stream, metric)
    before = len(cache)
    cache.write(stream.keys, stream.vectors)
    assert len(cache) == before


@given(streams(), concentrations(), merges(), metrics, st.booleans(), st.data())
def test_chunking_changes_nothing(stream, concentration, merge, metric, centre, data):
    values = stream.labels if merge.value == "counts" else stream.vectors
    centre = centre and metric == "cosine"
    whole, cut = (Cache(concentration, merge=merge, metric=metric, centre=centre) for _ in range(2))
    ids = whole.write(stream.keys, values)
    assert np.array_equal(write_cut(cut, stream.keys, values, data.draw(cuts(len(ids)))), ids)
    assert state(cut)[:-1] == state(whole)[:-1]  # all but the bytes held in reserve


@given(streams(), concentrations(), merges())
def test_the_temperature_stays_between_0_and_1(stream, concentration, merge):
    assert 0 <= written(concentration, stream, merge=merge).temperature <= 1


@given(streams(), concentrations(bounded=True), merges())
def test_slots_never_exceed_the_budget_after_a_token(stream, concentration, merge):
    cache = Cache(concentration, merge=merge)
    labels = merge.value == "counts"
    for i, key in enumerate(stream.keys):
        cache.write(key, stream.labels[i] if labels else stream.vectors[i])
        assert len(cache) <= cache.budget


def attention(queries, keys, values, theta):
    """Softmax attention over every token."""
    logits = unit(queries) @ unit(keys).T / theta
    mass = np.exp(logits - logits.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True) @ values


@given(streams(), st.floats(0.05, 1.0))
def test_below_every_distance_there_is_a_slot_per_token_and_reads_are_attention(stream, theta):
    distinct = np.unique(unit(stream.keys).astype(np.float32), axis=0, return_index=True)[1]
    keys, values = stream.keys[distinct], stream.vectors[distinct]
    cache = Cache(Concentration.fixed(0.0))
    cache.write(keys, values)
    assert len(cache) == len(keys)
    want = attention(keys, keys, values, theta)
    assert np.allclose(cache.read(keys, theta), want, atol=1e-4)
    assert np.allclose(cache.read_mass(keys, theta), want, atol=1e-4)


@given(streams(), st.floats(0.05, 1.0))
def test_the_mass_read_is_attention_over_every_token_when_repeats_are_identical(stream, theta):
    keys = np.concatenate([stream.keys, stream.keys, stream.keys[:3]])
    values = np.concatenate([stream.vectors, -stream.vectors, 5 + stream.vectors[:3]])
    cache = Cache(Concentration.fixed(0.0), merge=Merge(value="mean"))
    cache.write(keys, values)
    assert len(cache) <= len(stream.keys)
    want = attention(stream.keys, keys, values, theta)
    assert np.allclose(cache.read_mass(stream.keys, theta), want, atol=1e-4)


@given(streams(), concentrations(), merges(), metrics)
def test_reads_touch_nothing(stream, concentration, merge, metric):
    cache = written(concentration, stream, metric, merge)
    before = state(cache)
    cache.read(stream.keys)
    cache.read_mass(stream.keys)
    cache.nearest(stream.keys)
    assert state(cache) == before


@given(streams(), taus())
def test_the_order_of_queries_does_not_matter(stream, tau):
    cache = written(Concentration.fixed(tau), stream)
    answers = cache.read(stream.keys)
    assert np.allclose(cache.read(stream.keys[::-1])[::-1], answers, atol=1e-5)


@given(streams(), concentrations(), merges(), metrics)
def test_the_nearest_slot_is_the_nearest_slot(stream, concentration, merge, metric):
    cache = written(concentration, stream, metric, merge)
    ids, similarity = cache.nearest(stream.keys)
    rows = (unit(stream.keys) if metric == "cosine" else stream.keys).astype(np.float32)
    for row, found, similar in zip(rows, ids, similarity, strict=True):
        squared = distances(row, cache.slots.keys)
        assert found == cache.slots.ids[squared.argmin()]
        want = 1 - squared.min() / 2 if metric == "cosine" else -squared.min()
        assert similar == pytest.approx(want, rel=1e-9, abs=1e-9)


@given(pairs(), taus(), metrics)
def test_an_absorbed_cache_is_covered(two, tau, metric):
    a, b = (written(Concentration.fixed(tau), stream, metric) for stream in two)
    parts = np.concatenate([a.slots.keys, b.slots.keys])
    a.absorb(b)
    for key in parts:
        nearest = distances(key, a.slots.keys).min()
        assert from_distance(nearest, metric) <= tau
    assert (apart(a.slots.keys, metric) > tau).all()


@given(pairs(), concentrations(), merges(), metrics)
def test_absorbing_adds_every_count_and_keeps_the_budget(two, concentration, merge, metric):
    a, b = (written(concentration, stream, metric, merge) for stream in two)
    before, tokens = state(b), a.slots.count.sum() + b.slots.count.sum()
    ids = a.absorb(b)
    assert state(b) == before
    assert len(ids) == len(b)
    assert len(a) <= a.budget
    assert 0 <= a.temperature <= 1
    if not concentration.bounded:
        assert a.slots.count.sum() == tokens
        assert set(ids) <= set(a.slots.ids)


@given(streams(), concentrations(), merges(), metrics, st.booleans())
def test_a_saved_cache_loads_the_same(
    tmp_path_factory, stream, concentration, merge, metric, centre
):
    values = stream.labels if merge.value == "counts" else stream.vectors
    cache = Cache(concentration, merge=merge, metric=metric, centre=centre and metric == "cosine")
    path = tmp_path_factory.mktemp("snapshot") / "cache.safetensors"
    half = len(values) // 2
    cache.write(stream.keys[:half], values[:half])
    cache.save(path)
    loaded = Cache.load(path)
    assert state(loaded)[:-1] == state(cache)[:-1]
    for one in (cache, loaded):
        one.write(stream.keys[half:], values[half:])
    assert state(loaded)[:-1] == state(cache)[:-1]
