"""Queries measured together are queries measured layer by layer."""

import pytest
import torch

from distinctkv.hf import distinct_cache, metric
from distinctkv.hf.metric import Moments
from tests.hf.models import build

# Sums within a block of tokens are in float32.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def by_layer(cache):
    """The moments of what waits, each layer by itself."""
    found = []
    for layer in cache.layers:
        queries = torch.cat(layer.asked, 2)
        B = len(layer.positions)
        one = Moments.zero(B, layer.values.shape[1], queries.shape[-1], queries.device)
        where = layer.positions[:, None], layer.real[:, None]
        turned = layer.rotary.unrotate_queries(queries, *where)
        one.add(turned, layer.values, layer.real, layer.scaling)
        found.append(one)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("most", [1, 2**13, 2**24])
def test_moments_are_those_of_each_layer_however_many_are_taken_at_a_time(
    seed, text, monkeypatch, device, most
):
    model = build(seed).to(device)
    for name in ("MOST", "MOST_ELSEWHERE"):
        monkeypatch.setattr(metric, name, most)
    cache = distinct_cache(model, 1.0, recent=200)
    held = []
    measured = metric.measure

    def watched(layers):
        held.append(by_layer(cache))
        measured(layers)

    monkeypatch.setattr("distinctkv.hf.cache.measure", watched)
    ids = text.to(device).repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, :30] = 0
    model(ids, attention_mask=mask, past_key_values=cache)
    for layer, want in zip(cache.layers, held[0], strict=True):
        assert not layer.asked
        for name in ("queries", "values", "count"):
            torch.testing.assert_close(getattr(layer.moments, name), getattr(want, name), **CLOSE)


@pytest.mark.parametrize("wait", [0, 2**30])
def test_slots_do_not_depend_on_whether_queries_wait(tiny, text, monkeypatch, wait):
    caches = []
    for most in (metric.WAIT, wait):
        monkeypatch.setattr(metric, "WAIT", most)
        caches.append(distinct_cache(tiny, 1.0))
        for part in (text[:, :70], text[:, 70:71], text[:, 71:]):
            tiny(part, past_key_values=caches[-1])
    for a, b in zip(*(cache.layers for cache in caches), strict=True):
        assert torch.equal(a.slots.positions, b.slots.positions)
        torch.testing.assert_close(a.moments.queries, b.moments.queries, **CLOSE)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [40, 120])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_fewer_directions_than_numbers_in_a_key_are_enough(seed, text, device, length, kind):
    # Keys of 128 numbers from a model of 32: most of what is measured is zero.
    model = build(seed, head_dim=128).to(device, kind)
    cache = distinct_cache(model, 1.0)
    model(text[:, :length].to(device), past_key_values=cache)
    assert cache.n_slots(0) > 0


def test_queries_of_many_short_passes_wait_only_within_the_bound(tiny, text, monkeypatch):
    one_pass = len(tiny.model.layers) * 4 * 8 * 4  # layers, query heads, numbers, bytes
    monkeypatch.setattr(metric, "WAIT", 4 * one_pass)
    cache = distinct_cache(tiny, 1.0, recent=200)
    for token in text[:, :12].split(1, dim=1):
        tiny(token, past_key_values=cache)
        waiting = sum(query.nbytes for layer in cache.layers for query in layer.asked)
        assert waiting <= 4 * one_pass
