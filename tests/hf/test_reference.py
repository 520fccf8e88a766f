"""The cache holds the slots and gives the logits of the plainest implementation."""

import pytest
import torch

from distinctkv.hf import FAST, MergePolicy, distinct_cache
from distinctkv.hf.merge import allocate
from tests.hf.models import build
from tests.hf.reference import ReferenceCache
from tests.hf.reference import allocate as one_by_one

POLICIES = {
    "default": MergePolicy(),
    "fast": FAST,
    "importance": MergePolicy(importance=1.0, horizon=None, attention_mean=False),
    "horizon": MergePolicy(importance=0.0, horizon=20, attention_mean=False),
    "attention mean": MergePolicy(importance=0.0, horizon=None, attention_mean=True),
}


def passes(ids):
    """A prefill, a chunk, and decoding steps across two merges."""
    return [ids[:, :200], ids[:, 200:250], *ids[:, 250:290].split(1, dim=1)]


@pytest.mark.parametrize(("kind", "policy", "threshold"), [
    *(("llama", policy, 1.4) for policy in POLICIES),
    ("llama", "default", 0.05), ("llama", "default", 1e30),
    ("qwen3", "default", 1.4), ("gemma", "fast", 1.4),
])  # fmt: skip
def test_slots_and_logits_are_those_of_the_reference(seed, text, kind, policy, threshold):
    noise = torch.randint(2, 64, (1, 120), generator=torch.Generator().manual_seed(seed))
    ids = torch.cat((text, noise, text), 1)
    ids = torch.cat((ids, ids.flip(1)))
    models = build(seed, kind), build(seed, kind)
    ours = distinct_cache(models[0], threshold, merge=POLICIES[policy], trace=True)
    reference = ReferenceCache(models[1], threshold, POLICIES[policy])
    for part in passes(ids):
        got, want = (model(part, past_key_values=cache).logits
                     for model, cache in zip(models, (ours, reference), strict=True))  # fmt: skip
        torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)
    for a, b in zip(ours.layers, reference.layers, strict=True):
        mask = a.slots.mask()
        assert torch.equal(mask, b.slots.count > 0)
        for name, theirs in (("counts", "count"), ("positions", "position"), ("keys", "keys")):
            held = a.slots.padded(getattr(a.slots, name))
            torch.testing.assert_close(held[mask], getattr(b.slots, theirs)[mask].to(held.dtype))
        values = a.slots.padded(a.slots.values)[mask]
        torch.testing.assert_close(values, b.slots.values[mask], atol=1e-4, rtol=1e-3)
    # 258 of 290 tokens are merged at most, of which 4 are sinks.
    slots = ours.summary().slots
    assert (slots == 5).all() if threshold == 1e30 and policy == "default" else slots.min() > 5


@pytest.mark.parametrize("threshold", [0.0, 0.3, 4.0, 100.0])
@pytest.mark.parametrize("chunk", [7, 64])
def test_owners_are_those_of_the_rule(seed, monkeypatch, threshold, chunk):
    # Not public: chunks and sinks at odd places do not occur in a cache.
    monkeypatch.setattr("distinctkv.hf.merge.CHUNK", chunk)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(3, 50, 2, generator=generator) * 2
    lengths = torch.tensor([0, 4, 6])
    slots = torch.randn(3, 6, 2, generator=generator) * 9
    joinable = (torch.arange(6) >= 2) & (torch.arange(6) < lengths[:, None])
    mask = torch.ones(3, 50, dtype=torch.bool)
    found = allocate(tokens, mask, slots, joinable, lengths, threshold)
    radius = torch.full((3, 50), threshold)
    owner, n_slots = one_by_one(tokens, radius, slots, joinable, lengths.clone())
    assert torch.equal(found.owner, owner)
    assert torch.equal(found.lengths, n_slots)
    mask[:, ::3] = False
    assert (allocate(tokens, mask, slots, joinable, lengths, threshold).owner[:, ::3] == -1).all()


@pytest.mark.parametrize("far", [0, 100_000])
@pytest.mark.parametrize("horizon", [7, 21, 70])
def test_tokens_just_a_horizon_apart_join_however_they_are_rounded(seed, horizon, far):
    words = 30 * torch.randn(4, 7, 40, generator=torch.Generator().manual_seed(seed))
    at = torch.arange(350.0)
    places = ((at + far) / horizon).expand(4, -1)[..., None]
    tokens = torch.cat((words.repeat(1, 50, 1), places), 2)
    mask, none = torch.ones(4, 350, dtype=torch.bool), torch.zeros(4, dtype=torch.int64)
    opened = allocate(tokens, mask, tokens[:, :0], mask[:, :0], none, 1.0).opened
    # The first of each word, and then what is further than the horizon from the last opened.
    assert torch.equal(opened, (at % (horizon + 7) < 7).expand(4, -1))


def test_a_common_shift_changes_nothing(seed):
    tokens = torch.randn(1, 80, 8, generator=torch.Generator().manual_seed(seed))
    mask, none = torch.ones(1, 80, dtype=torch.bool), torch.zeros(1).long()
    here, there = (
        allocate(rows, mask, rows[:, :0], mask[:, :0], none, 6.0) for rows in (tokens, tokens + 300)
    )
    assert torch.equal(here.owner, there.owner)
