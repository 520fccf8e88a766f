"""What care is for: tokens that attention goes to are merged later, or not at all."""

import json
from itertools import product
from math import ceil, inf, nan

import pytest
import torch

from distinctkv.hf import CAREFUL, Care, DistinctCache, distinct_cache
from distinctkv.hf.allocation import allocate
from distinctkv.hf.attention import reach, received, weights
from distinctkv.hf.config import Plan
from distinctkv.hf.slots import Slots
from tests.hf.models import build


def slots_of(cache):
    return [layer.slots.padded(0) for layer in cache.layers]


@pytest.fixture
def window(seed):
    """Queries, keys and padding of two streams: 4 query heads, 2 key heads, 9 tokens."""
    generator = torch.Generator().manual_seed(seed)
    real = torch.ones(2, 9, dtype=torch.bool)
    real[1, :3] = False
    query = torch.randn(2, 4, 9, 8, generator=generator)
    return query, torch.randn(2, 2, 9, 8, generator=generator), real


@pytest.mark.parametrize("size", [{"threshold": 0.5}, {"kept": 0.3}])
def test_what_merges_does_not_depend_on_the_default_type(seed, text, size):
    model, kinds, logits = build(seed), (torch.float32, torch.bfloat16), []
    for kind in kinds:
        torch.set_default_dtype(kind)
        try:
            cache = distinct_cache(model, **size, recent=8, care=CAREFUL)
            model(text, past_key_values=cache)
            logits.append(model(text[:, :20], past_key_values=cache).logits)
        finally:
            torch.set_default_dtype(torch.float32)
    assert torch.equal(*logits)


def attention(query, keys, real):
    """The whole matrix, (B, H, L, R)."""
    logits = query @ keys.repeat_interleave(2, 1).mT
    causal = torch.ones(9, 9).tril().bool() & real[:, None, None]
    logits = logits.masked_fill(~(causal | torch.eye(9).bool()), -inf)
    return logits.softmax(-1).view(2, 2, 2, 9, 9).mean(2)


def test_attention_received_is_the_sum_of_its_column(window, monkeypatch):
    query, keys, real = window
    monkeypatch.setattr("distinctkv.hf.attention.ROWS", 4)
    seen = real.cumsum(1)
    got = received(query, keys, real, seen, Slots.none(keys, keys), 1.0, None)
    want = (attention(query, keys, real) * (seen * real)[:, None, :, None]).sum(2)
    torch.testing.assert_close(got, want)


def test_attention_in_chunks_adds_up_to_that_of_one_pass(tiny, text):
    care = Care(importance=0.5)
    whole, parts = (distinct_cache(tiny, 1.0, recent=120, care=care) for _ in range(2))
    tiny(text, past_key_values=whole)
    for chunk in text.split(35, dim=1):
        tiny(chunk, past_key_values=parts)
    for a, b in zip(whole.layers, parts.layers, strict=True):
        torch.testing.assert_close(a.got, b.got, atol=1e-3, rtol=1e-4)


def test_a_slot_is_counted_in_attention_as_its_tokens_are(window):
    query, keys, real = window
    keys[:, :, 1] = keys[:, :, 0]
    whole = received(
        query[:1], keys[:1], real[:1], real[:1].cumsum(1), Slots.none(keys[:1], keys), 1.0, None
    )
    ones = torch.ones(2, dtype=torch.int32)
    none = torch.zeros(0)
    slots = Slots(keys[0, :, 0], keys[0, :, 0], 2 * ones, ones, *[none] * 3, torch.tensor([[1, 1]]))
    later = received(
        query[:1, :, 2:], keys[:1, :, 2:], real[:1, 2:], torch.arange(3, 10)[None], slots, 1.0, None
    )
    torch.testing.assert_close(later, whole[:, :, 2:])


def test_even_attention_weighs_nothing_and_more_attention_more(seed):
    asked = torch.tensor([5, 4, 3])
    assert torch.equal(weights(asked[None].float(), asked, Care(importance=0.7)), torch.ones(1, 3))
    got = torch.rand(1, 3, generator=torch.Generator().manual_seed(seed)) + 0.1
    heavy = weights(got, asked, Care(importance=0.5))
    torch.testing.assert_close(heavy.square(), got / asked)


def test_reach_is_the_threshold_over_the_weight():
    found = reach(2.0, torch.tensor([1.0, 4.0, 0.5, inf]))
    assert found.tolist() == [2.0, 0.5, 4.0, -1.0]


def test_without_power_importance_changes_nothing(tiny, text):
    plain, cared = distinct_cache(tiny, 2.0), distinct_cache(tiny, 2.0, care=Care(spare=1e-9))
    tiny(text, past_key_values=plain)
    tiny(text, past_key_values=cared)
    # A part above 0 spares at least one token of each layer.
    gap = cared.n_slots(0) - plain.n_slots(0)
    assert -3 <= gap <= 3
    assert all(int(part.weight.isinf().sum()) == 1 for part in slots_of(cared))


def test_spared_tokens_stay_alone(tiny, text):
    cache = distinct_cache(tiny, 1e6, sinks=0, care=Care(spare=0.1))
    tiny(text, past_key_values=cache)
    for part in slots_of(cache):
        spared = part.weight.isinf()
        assert int(spared.sum()) == 18  # a tenth of 88 tokens of 2 heads, rounded up
        assert (part.counts[spared] == 1).all()
        assert (part.lengths == spared.sum(1) + 1).all()  # all others are one slot


def test_importance_moves_slots_to_where_attention_is(tiny, text):
    plain, cared = (
        distinct_cache(tiny, kept=0.4, care=care) for care in (None, Care(importance=1.0))
    )
    for cache in (plain, cared):
        tiny(text.repeat(1, 2), past_key_values=cache)
        assert 0.38 <= cache.summary().kept <= 0.4
    assert (plain.summary().slots != cared.summary().slots).any()


def test_a_stream_with_padding_has_the_importance_it_has_alone(tiny, text):
    care = Care(importance=0.7, spare=0.05)
    both, alone = distinct_cache(tiny, 1.0, care=care), distinct_cache(tiny, 1.0, care=care)
    mask = torch.ones(2, 120, dtype=torch.int64)
    mask[1, :20] = 0
    tiny(text.repeat(2, 1), attention_mask=mask, past_key_values=both)
    tiny(text[:, 20:], past_key_values=alone)
    both.reorder_cache(torch.tensor([1, 0]))
    for a, b in zip(both.layers, alone.layers, strict=True):
        ours, want = a.slots.padded(0), b.slots.padded(0)
        assert torch.equal(ours.counts[:, : want.counts.shape[1]], want.counts)
        torch.testing.assert_close(a.got[0], b.got[0], atol=1e-3, rtol=1e-3)


def test_a_cap_of_one_counts_every_slot_once(tiny, text):
    cache = distinct_cache(tiny, 2.0)
    tiny(text, past_key_values=cache)
    capped = distinct_cache(tiny, 2.0, care=Care(cap=1))
    tiny(text, past_key_values=capped)
    for layer in cache.layers:
        layer.slots.counts.fill_(1)
    more = text[:, :3]
    logits = [tiny(more, past_key_values=one).logits for one in (cache, capped)]
    assert torch.equal(*logits)


def test_a_cap_beyond_every_count_changes_nothing(tiny, text):
    caches = [distinct_cache(tiny, 2.0, care=care) for care in (Care(), Care(cap=1000))]
    for cache in caches:
        tiny(text, past_key_values=cache)
    more = text[:, :3]
    assert torch.equal(*(tiny(more, past_key_values=cache).logits for cache in caches))


def test_a_threshold_tightens_beyond_1024_tokens_and_not_before(tiny, seed):
    long = torch.randint(2, 64, (1, 1500), generator=torch.Generator().manual_seed(seed))
    for length, same in ((1000, True), (1500, False)):
        slots = []
        for care in (Care(tighten=-1.0), Care(), Care(tighten=2.0)):
            cache = distinct_cache(tiny, 4.0, care=care)
            tiny(long[:, :length], past_key_values=cache)
            slots.append(cache.n_slots(0))
        assert slots == sorted(slots)
        assert len(set(slots)) == (1 if same else 3)


def test_attended_values_take_four_bytes_a_slot_and_else_nothing_differs(tiny, text):
    caches = [
        distinct_cache(tiny, 1.0, care=Care(importance=0.25, attended=attended))
        for attended in (False, True)
    ]
    for cache in caches:
        tiny(text, past_key_values=cache)
    plain, attended = caches
    assert attended.nbytes == plain.nbytes + 4 * plain.n_slots(0)
    for a, b in zip(plain.layers, attended.layers, strict=True):
        for name in ("keys", "counts", "positions", "weight", "lengths"):
            assert torch.equal(getattr(a.slots, name), getattr(b.slots, name))
        assert not len(a.slots.got)
    # In the first layer tokens that merge are the same word, with the same value.
    assert not torch.allclose(plain.layers[-1].slots.values, attended.layers[-1].slots.values)


def test_attended_alone_weighs_no_distance(tiny, text):
    plain, attended = (distinct_cache(tiny, 1.0, care=Care(attended=on)) for on in (False, True))
    for cache in (plain, attended):
        tiny(text, past_key_values=cache)
    for a, b in zip(plain.layers, attended.layers, strict=True):
        assert torch.equal(a.slots.counts, b.slots.counts)
        assert not len(b.slots.weight)
        assert len(b.slots.got) == len(b.slots)


def test_streams_chosen_anew_keep_their_attention(tiny, text):
    cache = distinct_cache(tiny, kept=0.5, care=CAREFUL)
    tiny(torch.cat((text, text.flip(1))), past_key_values=cache)
    before = [layer.slots.stream(1).got for layer in cache.layers]
    cache.reorder_cache(torch.tensor([1, 1]))
    for layer, got in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.slots.got, got.repeat(2))


@pytest.mark.parametrize("wrong", [1, 0.5, None, "yes"])
def test_attended_is_yes_or_no(wrong):
    with pytest.raises(TypeError, match=f"attended must be True or False, got {wrong!r}; False"):
        Care(attended=wrong)


def test_care_survives_a_file(tmp_path, seed, text):
    model = build(seed)
    cache = distinct_cache(model, 2.0, care=Care(importance=0.5, spare=0.05, cap=4, horizon=90))
    model(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    again = DistinctCache.load(tmp_path / "cache.safetensors", model)
    for ids in (text[:, :50], text[:, 50:51]):
        logits = model(ids, past_key_values=cache).logits
        assert torch.equal(model(ids, past_key_values=again).logits, logits)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"importance": -1}, r"importance must lie in \[0, 4\], got -1"),
        ({"tighten": 5}, r"tighten must lie in \[-1, 4\], got 5"),
        ({"spare": 1.0}, r"spare must lie in \[0, 1\), got 1.0"),
        ({"horizon": 0}, "horizon must be finite and greater than 0, got 0; .* None is off"),
        ({"horizon": -5.0}, "horizon must be finite and greater than 0, got -5.0"),
        ({"horizon": inf}, "horizon must be finite and greater than 0, got inf"),
        ({"horizon": nan}, "horizon must be finite and greater than 0, got nan"),
        ({"cap": 0.5}, "cap must be at least 1, got 0.5; 1 counts every slot once"),
    ],
)
def test_wrong_numbers_are_named(wrong, said):
    with pytest.raises(ValueError, match=said):
        Care(**wrong)


@pytest.mark.parametrize("wrong", [True, "far"])
def test_a_horizon_is_a_number(wrong):
    with pytest.raises(TypeError, match=f"horizon must be a number, got {wrong!r}"):
        Care(horizon=wrong)


def test_a_horizon_keeps_apart_what_is_far_apart_and_a_far_one_nothing(tiny):
    ids = torch.full((1, 120), 9)  # in the first layer all tokens are alike
    for horizon, slots in ((1e9, 5), (10.0, 8 + 4)):
        cache = distinct_cache(tiny, 1.0, care=Care(horizon=horizon))
        tiny(ids, past_key_values=cache)
        # Beyond the sinks a slot every 11th token of 84: at 10 the distance is 1, not above it.
        assert cache.layers[0].slots.lengths.tolist() == [[slots, slots]]


@pytest.mark.parametrize("horizon", [16.0, 10.0])
def test_a_horizon_is_the_same_in_a_long_pass(horizon):
    model = build(0, num_hidden_layers=1, max_position_embeddings=65536)
    ids = (torch.arange(8192) % 17 + 2)[None]
    for step in (8192, 512):
        cache = distinct_cache(model, 1.0, sinks=0, recent=0, care=Care(horizon=horizon))
        for chunk in ids.split(step, dim=1):
            model(chunk, past_key_values=cache)
        assert cache.n_slots(0) == 2 * 8192  # a word comes again beyond the horizon


def test_no_more_is_spared_than_is_kept():
    with pytest.raises(ValueError, match=r"spares 0.3 of the tokens and 0.25 may be kept"):
        Plan(kept=0.25, care=Care(spare=0.3))
    with pytest.raises(ValueError, match="no budget can bound"):
        Plan(budget=100, care=Care(spare=0.3))
    with pytest.raises(TypeError, match=r"say CAREFUL, or Care\(importance=0.5\)"):
        Plan(care=0.5)


def test_a_plan_with_care_survives_json():
    plan = Plan(kept=0.5, care=Care(importance=0.5, cap=8, horizon=512, attended=True))
    assert Plan.of(json.loads(json.dumps(plan.state()))) == plan


@pytest.mark.parametrize("step", [1, 2, 16, 88])
def test_the_part_that_is_spared_does_not_depend_on_the_passes(tiny, text, step):
    cache = distinct_cache(tiny, 1e6, sinks=0, recent=0, care=Care(spare=0.1))
    tiny(text[:, :32], past_key_values=cache)
    for chunk in text[:, 32:].split(step, dim=1):
        tiny(chunk, past_key_values=cache)
    absorbed = 120 - cache.outside(0)
    for part in slots_of(cache):
        assert int(part.weight.isinf().sum()) == ceil(0.1 * 2 * absorbed)


def test_sparing_nearly_all_that_is_kept_holds_more_until_a_text_is_long_enough(tiny, text):
    cache = distinct_cache(tiny, kept=0.5, recent=32, care=Care(spare=0.4))
    with pytest.warns(UserWarning, match=r"kept=0.5 leaves stream 0 .* keep more, or spare less"):
        tiny(text, past_key_values=cache)
    # Outside 32; of 84 others 0.4 of 2 heads; 4 sinks, and all else in one slot of each head.
    assert cache.n_slots(0) == cache.sizing._fewest(cache, 0)
    assert 0.5 < cache.summary().kept < 0.7
    cache.reset()
    tiny(text.repeat(1, 3), past_key_values=cache)
    assert cache.summary().kept <= 0.5


def test_sparing_too_much_is_said_once_and_a_long_text_is_merged(seed):
    model = build(seed, vocab_size=500)
    cache = distinct_cache(model, kept=0.1, care=Care(spare=0.08))
    ids = torch.randint(2, 500, (1, 1500), generator=torch.Generator().manual_seed(seed))

    def read():
        for chunk in ids.split(64, dim=1):
            model(chunk, past_key_values=cache)

    with pytest.warns(UserWarning, match=r"spares 0.08 needs") as said:
        read()
    assert len(said) == 1
    assert cache.summary().kept < 0.11


def test_tokens_just_a_horizon_apart_join_however_they_are_rounded(seed):
    generator = torch.Generator().manual_seed(seed)
    words = 30 * torch.randn(4, 7, 40, generator=generator)
    for horizon, far in product((7, 21, 70), (0, 100_000)):
        at = torch.arange(350.0)
        tokens = torch.cat(
            (words.repeat(1, 50, 1), ((at + far) / horizon).expand(4, -1)[..., None]), 2
        )
        present = torch.ones(4, 350, dtype=torch.bool)
        none = tokens[:, :0], present[:, :0], torch.zeros(4, dtype=torch.int64)
        opened = allocate(tokens, present, *none, 1.0).opened
        # The first of each word, and then what is further than the horizon from the last opened.
        period = horizon + 7
        assert torch.equal(opened, (at % period < 7).expand(4, -1))


def test_drafts_that_are_taken_back_leave_the_attention_of_each_query_as_it_was(tiny, text):
    cache = distinct_cache(tiny, 1.0, recent=200, care=CAREFUL)
    tiny(text, past_key_values=cache)
    before = [layer.got.sum() for layer in cache.layers]
    for draft in text.split(6, dim=1):
        tiny(draft, past_key_values=cache)
        cache.crop(-6)
    for layer, got in zip(cache.layers, before, strict=True):
        assert layer.got.shape[2] == 120
        assert layer.got.sum() == pytest.approx(float(got), rel=0.5)  # or it is 3 times as much
