"""Sizes that were asked for are the sizes that are held."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distinctkv import Concentration
from distinctkv.hf import Care, distinct_cache
from distinctkv.hf import cache as caching
from distinctkv.hf.budget import least_threshold
from distinctkv.hf.merge import Regrouping
from tests.hf.models import build


@pytest.fixture
def long(text):
    return text.repeat(1, 3)


@pytest.mark.parametrize("kept", [0.75, 0.5, 0.25])
def test_kept_is_what_is_kept(tiny, long, kept):
    cache = distinct_cache(tiny, kept=kept)
    tiny(long, past_key_values=cache)
    assert 0.9 * kept <= cache.summary().kept <= kept
    slots = cache.summary().slots
    assert slots.min() < slots.mean() < slots.max()  # one threshold, not one size


@pytest.mark.parametrize(
    ("size", "newest"),
    [
        ({"kept": 1 / 4}, 32),
        ({"kept": 1 / 8}, 16),
        ({"kept": 1 / 16}, 8),
        ({"kept": 1 / 16, "recent": 32}, 32),
        ({"budget": 64}, 8),
        ({"budget": 64, "recent": 3}, 3),
        ({"budget": 200}, 25),
        ({"threshold": 1.0}, 32),
        ({"kept": 1 / 32}, 32),  # too little to begin with
    ],
)
def test_fewer_of_the_newest_wait_where_little_is_held(tiny, text, size, newest):
    cache = distinct_cache(tiny, **size)
    tiny(text.repeat(1, 9)[:, :1024], past_key_values=cache)
    assert cache.outside(0) == newest
    if "kept" in size and size["kept"] > 1 / 32:
        assert 0.95 * size["kept"] < cache.summary().kept <= size["kept"]


@pytest.mark.parametrize("block", [16, 64])
@pytest.mark.parametrize(
    ("size", "first"), [({"kept": 0.25}, 147), ({"kept": 0.1, "recent": 8, "sinks": 0}, 85)]
)
def test_what_was_held_whole_merges_as_soon_as_it_may(tiny, text, monkeypatch, block, size, first):
    monkeypatch.setattr(caching, "BLOCK", block)
    cache, long = distinct_cache(tiny, **size), text.repeat(1, 4)
    tiny(long[:, :first], past_key_values=cache)
    for n in range(first, first + 90):
        tiny(long[:, n : n + 1], past_key_values=cache)
        if cache.plan.begins(n + 1):
            assert cache.summary().kept * (n + 1) <= size["kept"] * (n + 1) + block - 1
    assert cache.plan.begins(first + 90)


@pytest.mark.parametrize("threshold", [1e30, 3e38, 1e39, 1e300])
@pytest.mark.parametrize("sinks", [0, 4])
def test_no_token_is_lost_at_a_huge_threshold(tiny, text, threshold, sinks):
    for care in (Care(), Care(importance=0.25)):
        cache = distinct_cache(tiny, threshold, sinks=sinks, recent=8, care=care)
        tiny(text, past_key_values=cache)
        for layer in cache.layers:
            assert layer.slots.padded(0).counts.sum(1).tolist() == [112, 112]


def test_one_threshold_serves_the_whole_model(tiny, long):
    searched = distinct_cache(tiny, kept=0.4, recent=32)
    tiny(long, past_key_values=searched)
    fixed = distinct_cache(tiny, searched.summary().threshold)
    tiny(long, past_key_values=fixed)
    assert (fixed.summary().slots == searched.summary().slots).all()


def test_a_budget_is_kept_as_tokens_come(tiny, long):
    cache = distinct_cache(tiny, budget=60)
    for chunk in long.split(40, dim=1):
        tiny(chunk, past_key_values=cache)
        summary = cache.summary()
        assert summary.slots.mean() + summary.outside <= 60
    for token in long[:, :40].split(1, dim=1):
        tiny(token, past_key_values=cache)
        # While tokens come one by one, fewer than 16 wait.
        assert cache.summary().slots.mean() <= 60 - 8


@settings(max_examples=10)
@given(kept=st.sampled_from([0.25, 0.5]), cuts=st.sets(st.integers(1, 399), max_size=6))
def test_kept_is_what_is_kept_however_a_text_is_cut(tiny, seed, kept, cuts):
    new = torch.randint(2, 64, (1, 400), generator=torch.Generator().manual_seed(seed))
    cache = distinct_cache(tiny, kept=kept)
    for chunk in new.tensor_split(sorted(cuts), dim=1):
        tiny(chunk, past_key_values=cache)
        if cache.sizing.thresholds[0] is not None:
            # While tokens come one by one, fewer than 16 wait.
            wait = 15 / cache.tokens(0) if chunk.shape[1] == 1 else 0.0
            assert 0.9 * kept <= cache.summary().kept <= kept + wait


def test_kept_is_an_upper_bound_in_chunks(tiny, long):
    cache = distinct_cache(tiny, kept=0.5)
    for chunk in long.split(90, dim=1):
        tiny(chunk, past_key_values=cache)
        assert cache.summary().kept <= 0.5


def test_counts_are_all_the_tokens_whatever_was_merged(tiny, long):
    cache = distinct_cache(tiny, budget=50)
    for chunk in long.split(64, dim=1):
        tiny(chunk, past_key_values=cache)
    for layer in cache.layers:
        counts = layer.slots.padded(0).counts.sum(1)
        assert counts.tolist() == [360 - cache.outside(0)] * 2


@pytest.mark.parametrize("care", [Care(), Care(horizon=50)])
def test_what_was_searched_for_is_what_a_direct_run_gives(tiny, long, care):
    searched = distinct_cache(tiny, kept=0.3, recent=32, care=care)
    tiny(long, past_key_values=searched)
    direct = distinct_cache(tiny, searched.summary().threshold, care=care)
    tiny(long, past_key_values=direct)
    for a, b in zip(searched.layers, direct.layers, strict=True):
        for name in ("keys", "counts", "positions"):
            assert torch.equal(getattr(a.slots, name), getattr(b.slots, name))
        torch.testing.assert_close(a.slots.values, b.slots.values)


def test_a_search_looks_only_a_few_times():
    for part in (0.5, 0.25, 1 / 16):
        for power in (0.5, 1.0, 2.0):
            looks = []

            def slots(at, looks=looks, power=power):
                looks.append(at)
                return int(90_000 / (1 + at**power))

            found = least_threshold(slots, int(part * 90_000))
            assert slots(found) <= part * 90_000
            assert len(looks) <= 8


def test_a_step_takes_few_looks_however_steep():
    for steep in (2, 5, 10, 20, 40):
        looks = []

        def slots(at, looks=looks, steep=steep):
            looks.append(at)
            return int(90_000 * (0.1 + 0.9 / (1 + (at / 0.4) ** steep)))

        found = least_threshold(slots, 22_500)
        assert 0.94 * 22_500 <= slots(found) <= 22_500
        assert len(looks) <= 10


@pytest.mark.parametrize("start", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("most", [20_000, 21_500])
@pytest.mark.parametrize("power", [0.0, 0.003, 0.03])
def test_where_slots_hardly_fall_a_search_takes_few_looks(start, most, power):
    looks = []

    def slots(at):
        looks.append(at)
        return int(most * (1 + at) ** -power)

    found = least_threshold(slots, 21_000, start)
    assert len(looks) <= 16
    assert 0.98 * min(most, 21_000) <= slots(found) <= 21_000 or most == 21_500 > power == 0


def test_where_no_threshold_leaves_enough_it_does_not_vanish():
    assert least_threshold(lambda at: 80, 100, 2.0) == 2.0
    assert least_threshold(lambda at: 50 if at > 1 else 80, 100, 30.0) > 0.01


def test_a_search_that_cannot_succeed_ends():
    looks = []
    assert least_threshold(lambda at: looks.append(at) or 200, 100) >= 1e12
    assert len(looks) <= 15


def test_a_search_in_many_layers_begins_with_some_of_them(seed, long, monkeypatch):
    model = build(seed, num_hidden_layers=9)
    looks = []
    look = Regrouping.look

    def watched(self, thresholds):
        looks.append(len(self.group.layers))
        return look(self, thresholds)

    monkeypatch.setattr(Regrouping, "look", watched)
    cache = distinct_cache(model, kept=0.3)
    model(long, past_key_values=cache)
    assert 0.9 * 0.3 <= cache.summary().kept <= 0.3
    assert looks == sorted(looks)  # first some layers, then all
    assert looks.count(2) >= 1
    assert 1 <= looks.count(9) <= 5
    assert set(looks) == {2, 9}


def test_each_stream_has_its_own_threshold(tiny, long, seed):
    noise = torch.randint(2, 64, long.shape, generator=torch.Generator().manual_seed(seed))
    both = distinct_cache(tiny, kept=0.3)
    tiny(torch.cat((long, noise)), past_key_values=both)
    alone = distinct_cache(tiny, kept=0.3)
    tiny(long, past_key_values=alone)
    thresholds = [both.summary(stream).threshold for stream in range(2)]
    assert thresholds[0] == alone.summary().threshold
    assert thresholds[0] < thresholds[1]


def test_surprise_lets_slots_grow_while_the_text_is_new_and_evicts_the_least_used(tiny, seed):
    plan = Concentration.surprise(tau=1.0, base=50, gain=100, rate=0.1)
    cache = distinct_cache(tiny, surprise=plan)
    new = torch.randint(2, 64, (1, 160), generator=torch.Generator().manual_seed(seed))
    tiny(new, past_key_values=cache)
    hot, most = cache.sizing.temperatures[0], cache.summary().slots.mean()
    tiny(torch.full((1, 200), 9), past_key_values=cache)
    assert cache.sizing.temperatures[0] < hot
    assert cache.summary().slots.mean() < most
    limit = 50 + 100 * cache.sizing.temperatures[0]
    assert cache.summary().slots.mean() + cache.outside(0) <= limit + 1
    positions = cache.layers[1].slots.padded(0).positions
    assert positions[:, :4].tolist() == [[0, 1, 2, 3]] * 2  # sinks stay
    assert tiny(new[:, :3], past_key_values=cache).logits.isfinite().all()


def test_the_search_finds_thresholds_far_from_where_it_starts():
    for scale in (1e-4, 1.0, 1e5):
        found = least_threshold(lambda at, s=scale: int(1000 / (1 + at / s)), 300)
        assert 2.3 * scale < found < 2.6 * scale


def test_a_search_that_begins_at_the_end_of_its_range_turns_round():
    for start in (1e-9, 1e-30, 1e12, 1e20):
        found = least_threshold(lambda at: int(1000 / (1 + at)), 300, start)
        assert 2.3 < found < 2.6


def test_a_step_is_found_and_what_always_fits_needs_no_search():
    assert 0.7 <= least_threshold(lambda at: 200 if at < 0.7 else 100, 150) < 0.71
    assert least_threshold(lambda at: 5, 150) == 1.0  # where it starts: another leaves as many


def test_a_text_of_one_word_is_searched_too(tiny):
    cache = distinct_cache(tiny, kept=0.6)
    tiny(torch.full((1, 200), 5), past_key_values=cache)
    assert cache.summary().kept <= 0.6


def test_a_search_that_finds_nothing_says_so_and_keeps_the_threshold(tiny, long, monkeypatch):
    cache = distinct_cache(tiny, kept=0.6)
    tiny(long[:, :300], past_key_values=cache)
    (before,) = cache.sizing.thresholds
    held = cache.n_slots(0)
    look = Regrouping.look
    monkeypatch.setattr(Regrouping, "look", lambda self, at: look(self, at) + 10**6)
    with pytest.warns(UserWarning, match="kept=0.6 cannot be met by stream 0: at any threshold"):
        tiny(torch.arange(2, 62)[None], past_key_values=cache)
    assert cache.sizing.thresholds == [before]
    assert cache.n_slots(0) >= held
