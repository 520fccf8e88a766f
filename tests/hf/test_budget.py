"""Sizes that were asked for are the sizes that are held."""

import json
from math import inf, nan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distinctkv.hf import FAST, MergePolicy, distinct_cache
from distinctkv.hf.budget import least_threshold
from distinctkv.hf.config import CacheConfig
from tests.hf.models import build, filled


@pytest.fixture
def long(text):
    return text.repeat(1, 3)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: CacheConfig(threshold=-0.5), "threshold"),
        (lambda: CacheConfig(threshold=nan), "nan"),
        (lambda: CacheConfig(kept=0), "got 0"),
        (lambda: CacheConfig(kept=1.01), "1.01"),
        (lambda: CacheConfig(budget=36), "at least 37"),
        (lambda: CacheConfig(threshold=1.0, kept=0.5), "threshold and kept"),
        (lambda: CacheConfig(sinks=-1), "sinks"),
        (lambda: CacheConfig(recent=-1), "recent"),
        (lambda: MergePolicy(importance=-1), r"\[0, 4\]"),
        (lambda: MergePolicy(horizon=0), "horizon"),
        (lambda: MergePolicy(horizon=inf), "horizon"),
    ],
)
def test_values_out_of_range_raise(make, word):
    with pytest.raises(ValueError, match=word):
        make()


def test_the_default_measures_attention_and_a_config_survives_json(tiny):
    cache = distinct_cache(tiny, kept=0.25)
    assert cache.config.merge == MergePolicy(importance=0.25, horizon=512, attention_mean=True)
    assert distinct_cache(tiny).config.threshold == 1.4
    config = CacheConfig(budget=100, recent=8, merge=FAST)
    assert CacheConfig.from_state(json.loads(json.dumps(config.state()))) == config


@pytest.mark.parametrize("merge", [None, FAST])
@pytest.mark.parametrize("kept", [0.75, 0.5, 0.25])
def test_kept_is_what_is_kept_and_what_its_threshold_gives(tiny, long, kept, merge):
    searched = filled(tiny, long, kept=kept, recent=32, merge=merge)
    summary = searched.summary()
    assert 0.9 * kept <= summary.kept <= kept
    assert summary.slots.min() < summary.slots.mean() < summary.slots.max()  # one threshold
    direct = filled(tiny, long, summary.threshold, merge=merge)
    for a, b in zip(searched.layers, direct.layers, strict=True):
        for name in ("lengths", "keys", "counts", "positions"):
            assert torch.equal(getattr(a.slots, name), getattr(b.slots, name))
        torch.testing.assert_close(a.slots.values, b.slots.values)


@pytest.mark.parametrize(
    ("size", "window"),
    [
        ({"kept": 1 / 4}, 32),
        ({"kept": 1 / 8}, 16),
        ({"kept": 1 / 16, "recent": 32}, 32),
        ({"budget": 64}, 8),
        ({"budget": 64, "recent": 3}, 3),
        ({"budget": 200}, 25),
        ({"threshold": 1.0}, 32),
        ({"kept": 1 / 32}, 32),  # too little to begin with
    ],
)
def test_the_window_is_smaller_if_little_is_held(tiny, text, size, window):
    cache = filled(tiny, text.repeat(1, 9)[:, :1024], **size)
    assert cache.in_window(0) == window
    if size.get("kept", 0) > 1 / 32:
        assert 0.95 * size["kept"] < cache.summary().kept <= size["kept"]


@pytest.mark.parametrize("first", [40, 100, 256])
def test_a_text_merges_as_soon_as_it_is_long_enough(tiny, text, first):
    cache, long = distinct_cache(tiny, kept=0.25), text.repeat(1, 4)
    tiny(long[:, :first], past_key_values=cache)
    assert cache.summary().min_length == (148 if first < 148 else 0)
    for token in long[:, first : first + 120].split(1, dim=1):
        tiny(token, past_key_values=cache)
        n = cache.tokens(0)
        if n >= 148:  # (4 sinks + 32 recent + 1) / .25; fewer than 16 tokens wait
            assert cache.summary().kept * n <= 0.25 * n + 15
    assert cache.summary().min_length == 0


def test_a_budget_is_kept_as_tokens_come(tiny, long):
    cache = distinct_cache(tiny, budget=60)
    for chunk in long.split(40, dim=1):
        tiny(chunk, past_key_values=cache)
        summary = cache.summary()
        assert summary.slots.mean() + summary.window <= 60
    for token in long[:, :40].split(1, dim=1):
        tiny(token, past_key_values=cache)
        assert cache.summary().slots.mean() <= 60 - 8


@settings(max_examples=10)
@given(kept=st.sampled_from([0.25, 0.5]), cuts=st.sets(st.integers(1, 399), max_size=6))
def test_kept_is_what_is_kept_however_a_text_is_cut(tiny, seed, kept, cuts):
    new = torch.randint(2, 64, (1, 400), generator=torch.Generator().manual_seed(seed))
    cache = distinct_cache(tiny, kept=kept)
    for chunk in new.tensor_split(sorted(cuts), dim=1):
        tiny(chunk, past_key_values=cache)
        if cache.summary().threshold is not None:
            wait = 15 / cache.tokens(0) if chunk.shape[1] == 1 else 0.0
            assert 0.9 * kept <= cache.summary().kept <= kept + wait


def test_each_sequence_has_its_own_threshold(tiny, long, seed):
    noise = torch.randint(2, 64, long.shape, generator=torch.Generator().manual_seed(seed))
    both, alone = distinct_cache(tiny, kept=0.3), distinct_cache(tiny, kept=0.3)
    tiny(torch.cat((long, noise)), past_key_values=both)
    tiny(long, past_key_values=alone)
    thresholds = [both.summary(sequence).threshold for sequence in range(2)]
    assert thresholds[0] == alone.summary().threshold
    assert thresholds[0] < thresholds[1]


def test_many_layers_and_groups_give_the_slots_of_one_group(seed, long, monkeypatch):
    model, held = build(seed, num_hidden_layers=9), []
    for most in (2**26, 1):  # not public: so that each layer is a group
        monkeypatch.setattr("distinctkv.hf.merge.MAX_BYTES", most)
        cache = filled(model, long, kept=0.3)
        assert 0.9 * 0.3 <= cache.summary().kept <= 0.3
        held.append(cache)
    direct = filled(model, long, held[1].summary().threshold, recent=cache.in_window(0))
    assert (direct.summary().slots == held[1].summary().slots).all()


def test_an_unreachable_size_warns_and_keeps_the_threshold(tiny, long, monkeypatch):
    cache = filled(tiny, long[:, :300], kept=0.6)
    before, held = cache.summary().threshold, cache.n_slots_each()[0]
    from distinctkv.hf.merge import Coarsening

    count = Coarsening.count
    monkeypatch.setattr(Coarsening, "count", lambda self, at: count(self, at) + 10**6)
    with pytest.warns(UserWarning, match="sequence 0: cannot reach kept=0.6"):
        tiny(torch.arange(2, 62)[None], past_key_values=cache)
    assert cache.summary().threshold == before
    assert cache.n_slots_each()[0] >= held


def test_a_text_of_one_word_is_searched_too(tiny):
    cache = distinct_cache(tiny, kept=0.6)
    tiny(torch.full((1, 200), 5), past_key_values=cache)
    assert cache.summary().kept <= 0.6


SLOTS = {  # slots as a function of the threshold, of 90,000; the goal; the most counts
    "power": (lambda at: 90_000 / (1 + at), 22_500, 8),
    "steep": (lambda at: 90_000 * (0.1 + 0.9 / (1 + min(at / 0.4, 1e6) ** 40)), 22_500, 10),
    "far": (lambda at: 90_000 / (1 + at / 1e5), 30_000, 12),
    "near": (lambda at: 90_000 / (1 + at / 1e-4), 30_000, 12),
    "flat": (lambda at: 21_500 * (1 + at) ** -0.003, 21_000, 16),
    "step": (lambda at: 200 if at < 0.7 else 100, 150, 30),
    "always fits": (lambda at: 5, 150, 30),
}


@pytest.mark.parametrize("start", [1e-9, 0.1, 1.0, 1e12])
@pytest.mark.parametrize("name", SLOTS)
def test_a_search_finds_the_least_threshold_in_few_counts(name, start):
    slots, goal, most = SLOTS[name]
    counts = []
    found = least_threshold(lambda at: counts.append(at) or int(slots(at)), goal, start)
    assert slots(found) <= goal
    assert slots(found) >= 0.94 * goal or slots(found / 1.05) > goal or name == "always fits"
    assert len(counts) <= most + (12 if start in (1e-9, 1e12) else 0)


def test_a_search_that_cannot_succeed_ends():
    counts = []
    assert least_threshold(lambda at: counts.append(at) or 200, 100) >= 1e12
    assert len(counts) <= 15
    assert least_threshold(lambda at: 80, 100, 2.0) == 2.0  # all that there is
