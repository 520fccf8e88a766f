"""Laws of a cache in generate and in plain forward passes."""

import copy
from io import BytesIO

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from distinctkv.hf import FAST, CropError, DistinctCache, PositionError, distinct_cache
from tests.hf.models import build, filled, greedy, weighs_as_its_tokens

SIZES = [{"threshold": 1.0}, {"kept": 0.3}, {"budget": 45}]


def run(model, ids, cache, **options):
    return model(ids, past_key_values=cache, **options).logits


@pytest.fixture
def padded(text):
    """Three sequences of different length, padded on the left."""
    ids = text.repeat(3, 1).clone()
    mask = torch.ones_like(ids)
    for sequence, padding in enumerate([0, 11, 90]):
        ids[sequence, :padding], mask[sequence, :padding] = 0, 0
    return ids, mask


@pytest.mark.parametrize("attention", ["distinctkv", "eager", "sdpa"])
def test_kept_1_is_a_dynamic_cache_bit_for_bit(seed, text, padded, attention):
    model = build(seed)
    ids, mask = padded
    for given, known in ((text, None), (ids, mask)):
        cache, plain = distinct_cache(model, kept=1.0), DynamicCache()
        logits = []
        for one, implementation in ((cache, attention), (plain, "sdpa")):
            model.set_attn_implementation(implementation)
            parts = [
                run(model, given[:, start:end], one,
                    attention_mask=None if known is None else known[:, :end])
                for start, end in ((0, 70), (70, 119), (119, 120))
            ]  # fmt: skip
            logits.append(torch.cat(parts, 1)[:, 90:])
        if attention == "eager":
            torch.testing.assert_close(*logits, atol=1e-4, rtol=0)
        else:
            assert torch.equal(*logits)


def test_a_slot_for_every_token_is_full_attention(tiny, text):
    cache, plain = distinct_cache(tiny, 1e-12), DynamicCache()
    ids = torch.arange(2, 62)[None]  # no word twice
    for part in (ids, text[:, :1], text[:, 1:2]):
        want = run(tiny, part, plain)
        torch.testing.assert_close(run(tiny, part, cache), want, atol=1e-4, rtol=0)
    assert cache.summary().slots.min() > 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("merge", [None, FAST])
def test_a_slot_weighs_in_attention_as_its_tokens_do(tiny, text, size, merge):
    cache = distinct_cache(tiny, **size, merge=merge, trace=True)
    said = torch.cat((text, greedy(tiny, text, cache, n=40)), 1)
    more = torch.cat((said, text[:, :30]), 1)
    greedy(tiny, more, cache, attention_mask=torch.ones_like(more))
    assert cache.summary().kept < 0.8
    weighs_as_its_tokens(tiny, text[:, :5], cache, atol=2e-4)
    for layer in cache.layers:  # no token is lost
        counts = layer.slots.padded(layer.slots.counts) * layer.slots.mask()
        assert (counts.sum(1) == cache.tokens(0) - cache.in_window(0)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_slots_weigh_as_their_tokens_in_other_dtypes(seed, text, dtype):
    model = build(seed).to(dtype)
    cache = filled(model, text, 1.0, recent=8, trace=True)
    assert cache.layers[0].slots.keys.dtype == dtype
    near = {"atol": 1e-5} if dtype == torch.float64 else {"atol": 0.1, "rtol": 0.05}
    weighs_as_its_tokens(model, text[:, :2], cache, **near)


def test_with_a_known_metric_a_text_may_be_cut_anywhere(tiny, text):
    from distinctkv.hf import calibrate

    metric, slots = calibrate(tiny, [text]), []
    for cuts in ([], [40], [33, 34, 35, 90]):
        cache = distinct_cache(tiny, 1.0, recent=8, metric=metric, merge=FAST)
        for part in text.tensor_split(cuts, dim=1):
            run(tiny, part, cache)
        # In the first layer keys do not depend on what was merged.
        first = cache.layers[0].slots.compact()
        slots.append((first.lengths.tolist(), first.positions.tolist(), first.counts.tolist()))
    assert slots[0] == slots[1] == slots[2]


class Largest(TorchDispatchMode):
    """The most elements of a tensor that is made meanwhile."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            self.most = max(self.most, one.numel() if isinstance(one, torch.Tensor) else 0)
        return made


@pytest.mark.parametrize("with_mask", [False, True])
def test_memory_of_a_chunk_does_not_grow_with_the_text(tiny, text, with_mask):
    cache, most, held = distinct_cache(tiny, budget=40), [], []
    for number in range(1, 31):
        mask = {"attention_mask": torch.ones(1, 120 * number)} if with_mask else {}
        with Largest() as largest:
            run(tiny, text, cache, **mask)
        most.append(largest.most)
        held.append(cache.nbytes)
    assert most[-1] <= most[4]
    assert held[-1] < 1.05 * held[4] < cache.summary().full / 5


def test_generate_can_chunk_the_prefill(tiny, text):
    cache, want = distinct_cache(tiny, 1.0), greedy(tiny, text, DynamicCache())
    if not torch.equal(greedy(tiny, text, DynamicCache(), prefill_chunk_size=50), want):
        # transformers 5.2 gives the positions of the last chunk to every chunk.
        with pytest.raises(PositionError, match="positions must grow"):
            greedy(tiny, text, cache, prefill_chunk_size=50)
        return
    exact = distinct_cache(tiny, kept=1.0)
    assert torch.equal(greedy(tiny, text, exact, prefill_chunk_size=50), want)
    greedy(tiny, text, cache, prefill_chunk_size=50)
    assert cache.summary().kept < 1


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_with_padding_is_the_sequence_alone(tiny, text, padded, size):
    ids, mask = padded
    together = distinct_cache(tiny, **size, recent=8)
    tokens = greedy(tiny, ids, together, attention_mask=mask)
    for sequence, padding in enumerate([0, 11, 90]):
        alone = distinct_cache(tiny, **size, recent=8)
        assert torch.equal(tokens[sequence], greedy(tiny, text[:, padding:], alone)[0])
        summaries = together.summary(sequence), alone.summary()
        assert (summaries[0].slots == summaries[1].slots).all()
        assert summaries[0].tokens == summaries[1].tokens


def test_padding_may_fill_whole_chunks(tiny, padded, text):
    ids, mask = padded
    cache, alone = distinct_cache(tiny, 1.0), distinct_cache(tiny, 1.0)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for start in range(0, 120, 40):
        part, seen = slice(start, start + 40), mask[:, : start + 40]
        where = {"attention_mask": seen, "position_ids": positions[:, part]}
        got = run(tiny, ids[:, part], cache, **where)
    assert got.isfinite().all()
    want = run(tiny, text[:, 90:], alone)
    torch.testing.assert_close(got[2:, -30:], want, atol=1e-4, rtol=0)


def test_beams_are_those_of_a_dynamic_cache_if_nothing_is_merged(tiny, padded):
    ids, mask = padded
    options = {"attention_mask": mask, "num_beams": 3, "num_return_sequences": 2}
    want = greedy(tiny, ids, DynamicCache(), **options)
    assert torch.equal(greedy(tiny, ids, distinct_cache(tiny, kept=1.0), **options), want)
    merged = distinct_cache(tiny, 1.0)
    assert greedy(tiny, ids, merged, n=20, **options).shape == (6, 20)
    assert merged.n_sequences == 9


def test_reordered_sequences_answer_in_the_new_order(tiny, padded):
    ids, mask = padded
    cache = distinct_cache(tiny, kept=0.4)
    tiny(ids, attention_mask=mask, past_key_values=cache)
    order = torch.tensor([2, 0, 0])
    other = copy.deepcopy(cache)
    other.batch_select_indices(torch.tensor([True, False, True]))
    other.reorder_cache(torch.tensor([1, 0]))
    other.batch_select_indices(torch.tensor([0, 1, 1]))
    assert other.summary(0).threshold == cache.summary(2).threshold != cache.summary(0).threshold
    more, longer = ids[:, -4:], torch.cat((mask, torch.ones(3, 4).long()), 1)
    want = run(tiny, more, cache, attention_mask=longer)
    got = run(tiny, more[order], other, attention_mask=longer[order])
    torch.testing.assert_close(got, want[order], atol=1e-5, rtol=0)
    other.batch_repeat_interleave(2)
    assert [other.summary(b).tokens for b in range(6)] == [34, 34, 124, 124, 124, 124]


@pytest.mark.parametrize("merge", [None, FAST])
@pytest.mark.parametrize("through_file", [False, True])
def test_cropped_tokens_leave_nothing_behind(tiny, text, tmp_path, through_file, merge):
    cache = filled(tiny, text, 1.0, merge=merge)
    untouched = copy.deepcopy(cache)
    for start in range(0, 40, 8):
        run(tiny, text[:, start : start + 8], cache)
        run(tiny, text[:, start : start + 1], cache)  # whose queries wait
        if through_file:
            cache.save(tmp_path / "cache")
            cache = DistinctCache.load(tmp_path / "cache", tiny)
        cache.crop(-8)
        cache.crop(-1)
    assert cache.get_seq_length() == 120
    for layer, plain in zip(cache.layers, untouched.layers, strict=True):
        assert layer.moments.count.tolist() == [120]
        # Sums are made in float32 by blocks, so what is removed is not the same to the last bit.
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(layer.moments.queries, plain.moments.queries, **close)
        torch.testing.assert_close(layer.moments.values, plain.moments.values, **close)
        if merge is None:  # the mean over queries is kept, not their sum
            assert layer.received.sum() == pytest.approx(float(plain.received.sum()), rel=0.5)


def test_cropped_tokens_leave_no_trace_in_the_logits(tiny, text):
    cache = filled(tiny, text, 1.0)
    untouched = copy.deepcopy(cache)
    for token in text[:, :2].split(1, dim=1):
        run(tiny, token, cache)
    cache.crop(-2)
    assert torch.equal(run(tiny, text[:, 5:9], cache), run(tiny, text[:, 5:9], untouched))


@pytest.mark.parametrize(("recent", "back"), [(32, 40), (0, 5), (4, 10)])
def test_a_saved_window_can_be_cropped(tiny, text, tmp_path, recent, back):
    cache = filled(tiny, text, 1.0, recent=recent)
    for token in text[:, :12].split(1, dim=1):
        run(tiny, token, cache)
    cache.save(tmp_path / "cache")  # accumulates the pending queries
    cache.crop(-back)
    assert {layer.moments.count.item() for layer in cache.layers} == {132 - back}


def test_slots_cannot_be_cropped_but_all_can(tiny, text):
    cache = filled(tiny, text, 1.0)
    for back in (32, 40):
        with pytest.raises(CropError, match="88"):
            cache.crop(-back)
    assert cache.get_seq_length() == 120
    cache.crop(-120)
    assert (cache.get_seq_length(), cache.nbytes) == (0, 0)
    assert torch.equal(run(tiny, text, cache), run(tiny, text, distinct_cache(tiny, 1.0)))


def test_after_a_reset_it_is_as_new_and_a_copy_is_its_own(tiny, text):
    cache, new = distinct_cache(tiny, kept=0.3), distinct_cache(tiny, kept=0.3)
    run(tiny, text.flip(1), cache)
    cache.reset()
    assert (cache.get_seq_length(), cache.nbytes) == (0, 0)
    assert torch.equal(run(tiny, text, cache), run(tiny, text, new))
    other = copy.deepcopy(cache)
    assert other.spec is cache.spec
    run(tiny, text[:, :20], other)
    assert (cache.get_seq_length(), other.get_seq_length()) == (120, 140)
    with pytest.raises(TypeError, match=r"cache\.save"):
        torch.save(cache, BytesIO())


def test_gradients_of_a_pass_are_those_of_a_dynamic_cache(seed, text):
    model, found = build(seed), []
    for cache in (distinct_cache(model, 1.0), DynamicCache()):
        model.zero_grad()
        with torch.enable_grad():
            run(model, text, cache).square().mean().backward()
        found.append(model.model.layers[0].self_attn.k_proj.weight.grad.clone())
    torch.testing.assert_close(*found)


def test_pending_queries_are_bounded_over_passes(tiny, text, monkeypatch):
    one_pass = len(tiny.model.layers) * 4 * 8 * 4  # layers, query heads, elements, bytes
    caches = [distinct_cache(tiny, 1.0, recent=200) for _ in range(2)]
    for cache, bound in zip(caches, (2**22, 4 * one_pass), strict=True):
        monkeypatch.setattr("distinctkv.hf.layer.PENDING", bound)
        for token in text[:, :12].split(1, dim=1):
            run(tiny, token, cache)
            waiting = sum(query.nbytes for layer in cache.layers for query in layer.pending)
            assert waiting <= bound
        run(tiny, text[:, 12:40], cache)  # accumulates all
    for a, b in zip(*(cache.layers for cache in caches), strict=True):
        torch.testing.assert_close(a.moments.queries, b.moments.queries, rtol=1e-5, atol=1e-5)


def test_drafts_are_verified_and_cropped(tiny, text):
    drafts = {"prompt_lookup_num_tokens": 3, "eos_token_id": 63}
    plain = greedy(tiny, text, distinct_cache(tiny, kept=1.0), eos_token_id=63)
    assert torch.equal(plain, greedy(tiny, text, distinct_cache(tiny, kept=1.0), **drafts))
    merged = distinct_cache(tiny, 1.0)
    tokens = greedy(tiny, text, merged, **drafts)
    assert merged.get_seq_length() == text.shape[1] + tokens.shape[1] - 1


@pytest.mark.skipif(
    not hasattr(DynamicCache, "activate_past_recording"), reason="drafts are not announced"
)
@pytest.mark.parametrize("size", [{"kept": 0.4}, {"budget": 40}])
def test_drafts_can_be_cropped_however_little_is_held(tiny, text, size):
    cache = distinct_cache(tiny, **size)
    tokens = greedy(tiny, text, cache, prompt_lookup_num_tokens=20, eos_token_id=63)
    assert cache.get_seq_length() == text.shape[1] + tokens.shape[1] - 1
    assert cache.summary().kept <= 0.4


def test_a_compiled_model_gives_the_logits_of_the_model(seed, text):
    model = build(seed, num_hidden_layers=1)
    both = (model, torch.compile(model, backend="eager"))
    caches = [distinct_cache(model, kept=0.5) for _ in range(2)]
    for ids in (text, text[:, :1]):
        pairs = zip(both, caches, strict=True)
        assert torch.equal(*(one(ids, past_key_values=cache).logits for one, cache in pairs))
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [{"threshold": 1.0}, {"kept": 0.4}])
def test_on_a_gpu_a_slot_weighs_as_its_tokens_do(seed, text, dtype, size):
    model, text = build(seed).to("cuda", dtype), text.cuda()
    cache = distinct_cache(model, **size, trace=True)
    greedy(model, text, cache, n=40)
    near = {"atol": 1e-3} if dtype == torch.float32 else {"atol": 0.1, "rtol": 0.05}
    weighs_as_its_tokens(model, text[:, :5], cache, **near)
