"""Approach II in a layer: slots, ids, usage and reads are those of the rule, head by head."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.nn import DistinctAttention, Heads, Reading, eviction
from distinctkv.nn.functional import SlotState, unit
from distinctkv.policy import Concentration, Merge
from distinctkv.rule import Rule
from tests.strategies import concentrations, streams

E, HEADS = 16, Heads(count=2, size=8)
LIVELY = Concentration.surprise(tau=0.2, base=2, gain=6, rate=0.3, decay=0.8)


def follow(keys, values, policy, merge="first"):
    """Ids of the tokens (L,) and the slots in the end, by the rule."""
    rule = Rule(policy, Merge(value=merge))
    return [rule.write(key, value) for key, value in zip(keys, values, strict=True)], rule


def written(keys, values, policy, mask=None, value="first"):
    """Ids (B, L, H), and slots and usage in the end, by the layer's engine."""
    B, L, H, _ = keys.shape
    slots = SlotState.empty(keys, values, capacity=L + 1)
    usage, ids = eviction.Usage.empty(slots), []
    above = eviction.above(torch.full((B, H), policy.tau, dtype=torch.float64))
    for t in range(L):
        at = slice(t, t + 1)
        real = None if mask is None else mask[:, at]
        before = usage
        found, usage = eviction.write(
            keys[:, at], values[:, at], slots, usage, above, policy, mask=real, value=value
        )
        row = found.assign[:, 0].clamp(min=0)[..., None]
        old = before.ids.gather(2, row)[..., 0]
        ids.append(torch.where(found.lead[:, 0], before.n_opened, old))
        ids[-1] = ids[-1].masked_fill(found.assign[:, 0] < 0, -1)
    return torch.stack(ids, 1), slots, usage


def assert_same(slots, usage, b, h, rule):
    n = int(slots.n_slots[b, h])
    assert usage.ids[b, h, :n].tolist() == [slot.id for slot in rule.slots]
    assert usage.usage[b, h, :n].tolist() == [slot.usage for slot in rule.slots]
    assert usage.last_seen[b, h, :n].tolist() == [slot.last_seen for slot in rule.slots]
    assert slots.counts[b, h, :n].tolist() == [slot.count for slot in rule.slots]
    assert float(usage.temperature[b, h]) == rule.temperature
    np.testing.assert_array_equal(slots.keys[b, h, :n].numpy(), rule.keys.reshape(n, -1))


@given(streams(most=60), concentrations(bounded=True), st.integers(1, 3))
def test_ids_slots_and_usage_are_those_of_the_rule(stream, policy, n_streams):
    """Each head of each sequence reads the stream in an order of its own."""
    rng = np.random.default_rng(len(stream.keys))
    rows = unit(torch.tensor(stream.keys)).float()
    order = np.stack([rng.permutation(len(rows)) for _ in range(2 * n_streams)])
    keys = rows[order].reshape(n_streams, 2, len(rows), -1).transpose(1, 2)
    values = torch.tensor(stream.vectors)[order].reshape(n_streams, 2, len(rows), 2).transpose(1, 2)
    ids, slots, usage = written(keys, values, policy)
    for b in range(n_streams):
        for h in range(2):
            said, rule = follow(keys[b, :, h].numpy(), values[b, :, h].numpy(), policy)
            assert ids[b, :, h].tolist() == said
            assert_same(slots, usage, b, h, rule)


@pytest.fixture
def layer():
    layer = DistinctAttention(E, HEADS, concentration=LIVELY, reading=Reading("distinct", "first"))
    layer(torch.randn(2, 30, E))
    return layer.eval()


@pytest.fixture
def x():
    return torch.randn(12, E)[torch.randint(12, (2, 40))]


@torch.no_grad()
def test_a_layer_reads_the_slots_that_the_rule_holds_after_each_token(layer, x):
    state = layer.start(2)
    out = layer(x, state)
    q, k, v, _ = layer.project(x, layer.start(2).conv_state)
    want = torch.zeros_like(q)
    for b in range(2):
        for h in range(HEADS.count):
            rule = Rule(LIVELY, Merge(value="first"))
            for t in range(x.shape[1]):
                rule.write(k[b, t, h].numpy(), v[b, t, h].numpy())
                keys = torch.from_numpy(rule.keys)
                values = torch.tensor(np.stack([slot.value for slot in rule.slots]))
                want[b, t, h] = (keys @ q[b, t, h]).softmax(0) @ values
            assert rule.n_opened > len(rule.slots)  # something was evicted
            assert_same(state.slots, state.usage, b, h, rule)
    assert state.slots.capacity <= 16
    torch.testing.assert_close(out, layer.project.out(want), rtol=0, atol=1e-5)


def test_training_keeps_all_slots_and_evaluation_does_not(layer, x):
    kept = []
    for training in (True, False):
        layer.train(training)(x)
        kept.append(float(layer.slots_per_token))
    assert kept[0] > 1.5 * kept[1]


FORGETFUL = Concentration.fixed(0.1, budget=3, decay=1e-6)


@pytest.mark.parametrize(("policy", "kept"), [(FORGETFUL, 1.0), (LIVELY, 0.6)])
def test_a_long_stream_keeps_usage_finite_and_padding_does_not_age_it(rng, policy, kept):
    rows = unit(torch.tensor(rng.standard_normal((6, 4)))).float()
    keys = rows[rng.integers(6, size=200)][None, :, None]
    mask = torch.tensor(rng.random((1, 200)) < kept)
    ids, slots, usage = written(keys, torch.zeros(1, 200, 1, 1), policy, mask)
    said, rule = follow(keys[0, mask[0], 0].numpy(), np.zeros(int(mask.sum())), policy)
    assert ids[0, mask[0], 0].tolist() == said
    assert (ids[0, ~mask[0]] == -1).all()
    assert_same(slots, usage, 0, 0, rule)
