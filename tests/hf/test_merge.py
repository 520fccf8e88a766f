"""All layers and streams at once against token by token."""

from math import inf

import pytest
import torch

from distinctkv import Concentration
from distinctkv.hf import CAREFUL, Care, distinct_cache, merge
from distinctkv.hf.attention import LEAST, weights
from distinctkv.hf.merge import absorb_all
from tests.hf.models import build


def by_hand(layer, b, h, start, plan, threshold, heavy):
    """Slots of one head from the tokens of its window, by the rule: lists of columns."""
    columns = [c for c in range(start) if layer.real[b, c]]
    scale = layer.moments.scale(b)
    keys = layer.rotary.unrotate(layer.keys[b], layer.positions[b])
    at = scale.features(keys, layer.values[b])[h].double()
    if plan.care.horizon:
        at = torch.cat((at, layer.positions[b, :, None] / plan.care.horizon), 1)
    slots, spared = [], []
    for order, column in enumerate(columns):
        sink = order < plan.sinks
        weight = 1.0 if heavy is None or sink else float(heavy[h, order - plan.sinks])
        joinable = [slot for slot in slots if slot[0] not in spared]
        far = [weight * (at[column] - at[slot[0]]).square().sum() for slot in joinable]
        if sink or weight == inf:
            spared.append(column)
        if sink or weight == inf or not far or min(far) > threshold:
            slots.append([column])
        else:
            joinable[int(torch.stack(far).argmin())].append(column)
    return slots


def shares(layer, care):
    """By what the values of tokens count in the mean of their slot, (B, H, R)."""
    ones = torch.ones(layer.values.shape[:3])
    return layer.got.clamp(min=LEAST) if care.attended else ones


def mean_by(share, values):
    return (share[:, None] * values.double()).sum(0) / share.sum()


@pytest.fixture
def window(seed, text):
    """A cache that holds three streams, two of them padded, and has merged nothing yet."""
    model = build(seed)
    ids = torch.cat((text, text.flip(1), text.roll(50, 1)))
    mask = torch.ones_like(ids)
    mask[1, :31], mask[2, :2] = 0, 0
    return model, ids, mask


CARES = [
    Care(),
    Care(importance=0.5, spare=0.1),
    Care(horizon=20),
    Care(attended=True),
    Care(importance=0.25, horizon=20, attended=True),
]


@pytest.mark.parametrize("care", CARES)
@pytest.mark.parametrize("most", [1, 2**26])
def test_slots_are_those_of_the_rule_for_each_stream_layer_and_head(
    window, monkeypatch, care, most
):
    model, ids, mask = window
    monkeypatch.setattr(merge, "MOST", most)
    cache = distinct_cache(model, 1.0, recent=119, care=care)
    model(ids[:, :119], attention_mask=mask[:, :119], past_key_values=cache)
    cache._measure()
    thresholds = [0.5, 2.0, 1.0]
    columns = 80
    want = {}
    for index, layer in enumerate(cache.layers):
        for b, threshold in enumerate(thresholds):
            real = [c for c in range(columns) if layer.real[b, c]][cache.plan.sinks :]
            heavy = None
            if care.weighs:
                asked = layer.real[b].flip(0).cumsum(0).flip(0)[real]
                heavy = weights(layer.got[b][:, real], asked, care)
            for h in range(2):
                want[index, b, h] = by_hand(layer, b, h, columns, cache.plan, threshold, heavy)
    before = [
        (layer.values.clone(), layer.positions.clone(), shares(layer, care))
        for layer in cache.layers
    ]
    opened = absorb_all(cache.layers, columns, cache.plan, thresholds, None)
    for (index, b, h), slots in want.items():
        layer, (values, positions, share) = cache.layers[index], before[index]
        rows = layer.slots.segments()[b][h]
        assert layer.slots.counts[rows].tolist() == [len(slot) for slot in slots]
        firsts = positions[b, [slot[0] for slot in slots]]
        assert torch.equal(layer.slots.positions[rows], firsts)
        means = torch.stack(
            [mean_by(share[b, h, slot].double(), values[b, h, slot]).float() for slot in slots]
        )
        torch.testing.assert_close(layer.slots.values[rows], means)
    assert opened.sum() == sum(len(slots) for slots in want.values())
    assert cache.layers[0].keys.shape[2] == 119 - columns


@pytest.mark.parametrize(
    "size",
    [
        {"threshold": 1.0},
        {"kept": 0.4},
        {"surprise": Concentration.surprise(tau=1.0, base=50, gain=60, rate=0.1)},
    ],
)
def test_layers_one_by_one_give_what_all_together_do(window, monkeypatch, size):
    model, ids, mask = window
    caches = []
    for most in (1, 2**26):
        monkeypatch.setattr(merge, "MOST", most)
        cache = distinct_cache(model, trace=True, **size)
        for start, end in ((0, 60), (60, 110), *((at, at + 1) for at in range(110, 120))):
            model(ids[:, start:end], attention_mask=mask[:, :end], past_key_values=cache)
        caches.append(cache)
    for a, b in zip(*(cache.layers for cache in caches), strict=True):
        for name in ("counts", "positions", "lengths"):
            assert torch.equal(getattr(a.slots, name), getattr(b.slots, name))
        torch.testing.assert_close(a.slots.values, b.slots.values)
        assert torch.equal(a.owner, b.owner)
    assert caches[0].sizing.thresholds == caches[1].sizing.thresholds


@pytest.mark.parametrize(
    "size",
    [
        {"threshold": 1.0},
        {"kept": 0.4, "recent": 32},
        {"surprise": Concentration.surprise(tau=1.0, base=50, gain=60, rate=0.1)},
    ],
)
def test_an_attended_value_is_the_mean_by_attention_however_its_tokens_came(
    window, monkeypatch, size
):
    model, ids, mask = window
    seen = []

    def note(layers, columns, *rest):
        left = slice(columns)
        seen.append([(layer.values[:, :, left], layer.got[..., left]) for layer in layers])
        return absorb_all(layers, columns, *rest)

    monkeypatch.setattr("distinctkv.hf.cache.absorb_all", note)
    cache = distinct_cache(model, trace=True, care=CAREFUL, **size)
    for start, end in ((0, 60), (60, 90), *((at, at + 1) for at in range(90, 120))):
        model(ids[:, start:end], attention_mask=mask[:, :end], past_key_values=cache)
    # Both chunks, once what came token by token, and when a part of each stream leaves slots.
    assert len(seen) == 3 + sum(cache.plan.begins(n) for n in mask.sum(1).tolist())
    for index, layer in enumerate(cache.layers):
        values = torch.cat([part[index][0] for part in seen], 2)
        got = torch.cat([part[index][1] for part in seen], 2).clamp(min=LEAST).double()
        for b, heads in enumerate(layer.slots.segments()):
            for h, rows in enumerate(heads):
                for slot, row in enumerate(range(rows.start, rows.stop)):
                    mine = layer.owner[b, h] == slot
                    assert int(mine.sum()) == layer.slots.counts[row]
                    whole = got[b, h, mine].sum().float()
                    torch.testing.assert_close(layer.slots.got[row], whole)
                    mean = mean_by(got[b, h, mine], values[b, h, mine]).float()
                    torch.testing.assert_close(layer.slots.values[row], mean, atol=1e-5, rtol=1e-4)


def test_padding_that_is_not_finite_hurts_nobody(window):
    model, ids, mask = window
    slots = []
    for wrong in (0.0, torch.nan):
        cache = distinct_cache(model, 1.0, recent=119)
        model(ids[:, :119], attention_mask=mask[:, :119], past_key_values=cache)
        for layer in cache.layers:
            layer.values[1, :, :31] = wrong
        absorb_all(cache.layers, 80, cache.plan, [1.0] * 3, None)
        slots.append(cache.layers[2].slots)
    assert torch.equal(slots[0].values, slots[1].values)
    assert torch.equal(slots[0].lengths, slots[1].lengths)


@pytest.mark.parametrize("size", [{"kept": 0.3}, {"budget": 60}, {"threshold": 1.0}], ids=str)
@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj"])
def test_what_is_not_finite_is_refused_however_a_cache_is_sized(seed, text, size, name):
    model = build(seed)
    cache = distinct_cache(model, sinks=2, recent=8, **size)
    model(text, past_key_values=cache)
    getattr(model.model.layers[1].self_attn, name).weight.mul_(inf)
    with pytest.raises(FloatingPointError, match="not finite"):
        model(text, past_key_values=cache)
