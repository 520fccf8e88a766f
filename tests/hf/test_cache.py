"""What a cache does in the hands of generate and of plain forward passes."""

import copy
from io import BytesIO

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache

from distinctkv.hf import CAREFUL, CropError, DistinctCache, PositionError, distinct_cache
from tests.hf.models import build, greedy, unfolded


def run(model, ids, cache, **options):
    return model(ids, past_key_values=cache, **options).logits


@pytest.fixture
def padded(text):
    """Three streams of different length, padded on the left."""
    ids = text.repeat(3, 1).clone()
    mask = torch.ones_like(ids)
    for stream, pads in enumerate([0, 11, 90]):
        ids[stream, :pads], mask[stream, :pads] = 0, 0
    return ids, mask


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_any_attention_serves_while_nothing_is_merged(seed, text, attention):
    model = build(seed)
    cache = distinct_cache(model, kept=1.0)
    model.set_attn_implementation(attention)
    plain = DynamicCache()
    assert torch.equal(greedy(model, text, plain), greedy(model, text, cache))
    more = text[:, :5]
    torch.testing.assert_close(run(model, more, plain), run(model, more, cache), atol=1e-4, rtol=0)


def test_tokens_that_come_one_by_one_are_merged_too(tiny, text):
    cache = distinct_cache(tiny, 1.0, trace=True)
    for token in text.split(1, dim=1):
        run(tiny, token, cache)
    assert cache.tokens(0) == 120
    assert 32 <= cache.outside(0) < 48
    assert cache.n_slots(0) < 0.8 * cache.n_heads * (120 - cache.outside(0))
    want = run(tiny, text[:, :2], unfolded(cache))
    torch.testing.assert_close(run(tiny, text[:, :2], cache), want, atol=1e-4, rtol=0)


def test_slots_weigh_as_their_tokens_in_float64_too(seed, text):
    model = build(seed).double()
    cache = distinct_cache(model, 1.0, recent=8, trace=True)
    run(model, text, cache)
    want = run(model, text[:, :2], unfolded(cache))
    torch.testing.assert_close(run(model, text[:, :2], cache), want, atol=1e-5, rtol=0)


def test_a_context_in_chunks_never_holds_more_than_slots_and_a_chunk(tiny, text):
    cache = distinct_cache(tiny, 8.0)
    sizes = []
    for chunk in text.repeat(1, 6).split(60, dim=1):
        run(tiny, chunk, cache)
        sizes.append(cache.nbytes)
    assert cache.get_seq_length() == 720
    assert sizes[-1] < 1.2 * sizes[3]  # three times the tokens
    assert sizes[-1] < cache.summary().full / 5


class Largest(TorchDispatchMode):
    """The most numbers of a tensor that is made meanwhile."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            self.most = max(self.most, one.numel() if isinstance(one, torch.Tensor) else 0)
        return made


@pytest.mark.parametrize("told", [False, True])
def test_a_chunk_after_a_long_text_takes_no_more_memory_than_after_a_short_one(tiny, text, told):
    cache, most = distinct_cache(tiny, budget=40), []
    for number in range(1, 41):
        mask = {"attention_mask": torch.ones(1, 120 * number)} if told else {}
        with Largest() as largest:
            run(tiny, text, cache, **mask)
        most.append(largest.most)
    assert most[-1] == most[2]


def test_generate_can_cut_the_prefill_into_chunks(tiny, text):
    cache, want = distinct_cache(tiny, 1.0), greedy(tiny, text, DynamicCache())
    if not torch.equal(greedy(tiny, text, DynamicCache(), prefill_chunk_size=50), want):
        # transformers 5.2 gives the positions of the last chunk to every chunk.
        with pytest.raises(PositionError, match="positions must grow"):
            greedy(tiny, text, cache, prefill_chunk_size=50)
        return
    exact = distinct_cache(tiny, kept=1.0)
    assert torch.equal(greedy(tiny, text, exact, prefill_chunk_size=50), want)
    greedy(tiny, text, cache, prefill_chunk_size=50)
    assert cache.n_slots(0) < cache.n_heads * 88


def test_a_conversation_goes_on_after_merging(tiny, text):
    cache = distinct_cache(tiny, 1.0, trace=True)
    said = torch.cat((text, greedy(tiny, text, cache)), 1)
    more = torch.cat((said, text[:, :30]), 1)
    tokens = greedy(tiny, more, cache)
    assert cache.get_seq_length() == more.shape[1] + tokens.shape[1] - 1
    want = run(tiny, text[:, :3], unfolded(cache))
    torch.testing.assert_close(run(tiny, text[:, :3], cache), want, atol=1e-4, rtol=0)


def test_a_stream_with_padding_is_the_stream_alone(tiny, text, padded):
    ids, mask = padded
    together = distinct_cache(tiny, 1.0)
    tokens = greedy(tiny, ids, together, attention_mask=mask)
    for stream, pads in enumerate([0, 11, 90]):
        alone = distinct_cache(tiny, 1.0)
        assert torch.equal(tokens[stream], greedy(tiny, text[:, pads:], alone)[0])
        assert together.n_slots(stream) == alone.n_slots(0)
        assert together.tokens(stream) == alone.tokens(0)


def test_padding_may_fill_whole_chunks(tiny, padded, text):
    ids, mask = padded
    cache, alone = distinct_cache(tiny, 1.0), distinct_cache(tiny, 1.0)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    for start in range(0, 120, 40):
        part = slice(start, start + 40)
        got = tiny(
            ids[:, part],
            attention_mask=mask[:, : start + 40],
            position_ids=positions[:, part],
            past_key_values=cache,
        ).logits
    want = run(tiny, text[:, 90:], alone)
    assert got.isfinite().all()
    torch.testing.assert_close(got[2:, -30:], want, atol=1e-4, rtol=0)


def test_beams_are_those_of_a_dynamic_cache_when_nothing_is_merged(tiny, padded):
    ids, mask = padded
    options = {"attention_mask": mask, "num_beams": 3, "num_return_sequences": 2}
    want = greedy(tiny, ids, DynamicCache(), **options)
    assert torch.equal(greedy(tiny, ids, distinct_cache(tiny, kept=1.0), **options), want)
    merged = distinct_cache(tiny, 1.0)
    assert greedy(tiny, ids, merged, n=20, **options).shape == (6, 20)
    assert merged.layers[0].slots.lengths.shape == (9, 2)


def test_reordered_streams_answer_in_the_new_order(tiny, padded):
    ids, mask = padded
    cache = distinct_cache(tiny, kept=0.4)
    tiny(ids, attention_mask=mask, past_key_values=cache)
    order = torch.tensor([2, 0, 0])
    other = copy.deepcopy(cache)
    other.reorder_cache(order)
    assert other.summary(0).threshold == cache.summary(2).threshold != cache.summary(0).threshold
    more, longer = ids[:, -4:], torch.cat((mask, torch.ones(3, 4).long()), 1)
    want = run(tiny, more, cache, attention_mask=longer)
    got = run(tiny, more[order], other, attention_mask=longer[order])
    torch.testing.assert_close(got, want[order], atol=1e-5, rtol=0)


def test_streams_can_be_selected_and_repeated(tiny, padded):
    ids, mask = padded
    cache = distinct_cache(tiny, kept=0.5)
    tiny(ids, attention_mask=mask, past_key_values=cache)
    slots = [cache.n_slots(stream) for stream in range(3)]
    cache.batch_select_indices(torch.tensor([True, False, True]))
    cache.batch_repeat_interleave(2)
    assert [cache.n_slots(i) for i in range(4)] == [slots[0], slots[0], slots[2], slots[2]]
    longer = torch.cat((mask[[0, 0, 2, 2]], torch.ones(4, 1).long()), 1)
    got = run(tiny, ids[[0, 0, 2, 2], -1:], cache, attention_mask=longer)
    assert torch.equal(got[0], got[1])
    assert not torch.equal(got[0], got[2])


@pytest.mark.parametrize("n", [1, 4])
def test_a_choice_among_another_number_of_streams_is_refused(tiny, text, n):
    cache = distinct_cache(tiny, threshold=1.0)
    tiny(text.repeat(3, 1), past_key_values=cache)
    with pytest.raises(ValueError, match=f"says yes or no to {n} streams, the cache holds 3"):
        cache.batch_select_indices(torch.ones(n, dtype=torch.bool))
    assert cache.n_streams == 3


def test_a_pickle_would_take_the_model_along_and_is_refused(tiny, text):
    cache = distinct_cache(tiny, threshold=1.0)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"write it to a file with cache\.save"):
            torch.save(cache, BytesIO())
        tiny(text, past_key_values=cache)


def test_cropped_tokens_leave_no_trace_in_the_logits(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    run(tiny, text, cache)
    untouched = copy.deepcopy(cache)
    run(tiny, text[:, :1], cache)
    run(tiny, text[:, 1:2], cache)
    cache.crop(-2)
    assert cache.get_seq_length() == 120
    assert torch.equal(run(tiny, text[:, 5:9], cache), run(tiny, text[:, 5:9], untouched))


@pytest.mark.parametrize("through_file", [False, True])
def test_drafts_that_are_taken_back_leave_no_queries_in_the_metric(
    tiny, text, tmp_path, through_file
):
    cache = distinct_cache(tiny, 1.0)
    run(tiny, text, cache)
    untouched = copy.deepcopy(cache)
    for start in range(0, 40, 8):
        run(tiny, text[:, start : start + 8], cache)
        if through_file:
            cache.save(tmp_path / "cache")
            cache = DistinctCache.load(tmp_path / "cache", tiny)
        cache.crop(-7)
        cache.crop(-1)
    for layer, plain in zip(cache.layers, untouched.layers, strict=True):
        assert layer.moments.count.tolist() == [120]
        # Sums are made in float32 by blocks, so what is taken off is not the same to the last bit.
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(layer.moments.queries, plain.moments.queries, **close)
        torch.testing.assert_close(layer.moments.values, plain.moments.values, **close)


@pytest.mark.parametrize(("recent", "back"), [(32, 40), (0, 5), (4, 10)])
def test_a_saved_window_can_be_cropped_without_queries_left_behind(
    tiny, text, tmp_path, recent, back
):
    cache = distinct_cache(tiny, 1.0, recent=recent)
    run(tiny, text, cache)
    for token in text[:, :12].split(1, dim=1):
        run(tiny, token, cache)
    cache.save(tmp_path / "cache")  # measures the queries that wait
    cache.crop(-back)
    assert {layer.moments.count.item() for layer in cache.layers} == {132 - back}


def test_tokens_that_are_slots_cannot_be_taken_back(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    run(tiny, text, cache)
    with pytest.raises(CropError, match="the 88 before the last 32 are slots now"):
        cache.crop(-40)
    with pytest.raises(TypeError, match=r"tokens must be a whole number, got -2\.0"):
        cache.crop(-2.0)
    assert cache.get_seq_length() == 120
    cache.crop(-120)
    assert cache.get_seq_length() == 0
    assert torch.equal(run(tiny, text, cache), run(tiny, text, distinct_cache(tiny, 1.0)))


def test_after_a_reset_it_is_as_new(tiny, text):
    cache, new = distinct_cache(tiny, kept=0.3), distinct_cache(tiny, kept=0.3)
    run(tiny, text.flip(1), cache)
    cache.reset()
    assert (cache.get_seq_length(), cache.nbytes) == (0, 0)
    assert torch.equal(run(tiny, text, cache), run(tiny, text, new))
    assert cache.n_slots(0) == new.n_slots(0)


def test_a_copy_goes_its_own_way(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    run(tiny, text, cache)
    other = copy.deepcopy(cache)
    assert other.anatomy is cache.anatomy
    run(tiny, text[:, :20], other)
    assert (cache.get_seq_length(), other.get_seq_length()) == (120, 140)


def test_bfloat16_holds_half_the_bytes_and_reads_as_its_tokens_do(seed, text):
    model = build(seed).to(torch.bfloat16)
    cache = distinct_cache(model, 1.0, trace=True)
    run(model, text, cache)
    assert cache.layers[0].slots.keys.dtype == torch.bfloat16
    want = run(model, text[:, :5], unfolded(cache)).float()
    got = run(model, text[:, :5], cache).float()
    torch.testing.assert_close(got, want, atol=0.1, rtol=0.05)
    assert greedy(model, text, distinct_cache(model, 1.0)).shape == (1, 12)


def test_gradients_of_a_pass_are_those_of_a_dynamic_cache(seed, text):
    model, found = build(seed), []
    for cache in (distinct_cache(model, 1.0), DynamicCache()):
        model.zero_grad()
        with torch.enable_grad():
            run(model, text, cache).square().mean().backward()
        found.append(model.model.layers[0].self_attn.k_proj.weight.grad.clone())
    torch.testing.assert_close(*found)
    assert not distinct_cache(model).layers[0].trace


def test_bytes_held_are_the_bytes_of_slots_and_window(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    run(tiny, text, cache)
    D, H = 8, 2
    pair = 2 * D * 4  # a key and a value in float32
    # Of a slot also two int32: count and position.
    outside = 32 * (4 + 1)  # positions, and whether they are padding, shared by all layers
    lengths = len(cache.layers) * H * 8
    slots = cache.n_slots(0) * (pair + 8) + cache.n_heads * 32 * pair
    queries = len(cache.layers) * 4 * 32 * D * 4  # of the newest tokens, which crop may take back
    assert cache.nbytes == slots + outside + lengths + queries + cache.summary().metric


def test_sinks_are_never_merged(tiny):
    cache = distinct_cache(tiny, 1e6, sinks=3)
    run(tiny, torch.full((1, 100), 7), cache)
    counts = cache.layers[0].slots.padded(0).counts
    assert counts.tolist() == [[1, 1, 1, 65]] * 2


def test_a_slot_has_the_first_key_and_the_mean_value(tiny, text):
    full, cache = distinct_cache(tiny, kept=1.0), distinct_cache(tiny, 4.0, trace=True)
    run(tiny, text, full)
    run(tiny, text, cache)
    for layer, whole in zip(cache.layers, full.layers, strict=True):
        slots, owner = layer.slots.padded(0), layer.owner[0]
        for head in range(2):
            for slot in range(int(slots.lengths[head])):
                members = (owner[head] == slot).nonzero()[:, 0]
                assert slots.counts[head, slot] == len(members)
                assert slots.positions[head, slot] == members[0]
                assert torch.equal(slots.keys[head, slot], whole.keys[0, head, members[0]])
                mean = whole.values[0, head, members].mean(0)
                torch.testing.assert_close(slots.values[head, slot], mean)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("plan", [{"threshold": 1.0}, {"kept": 0.4}])
def test_on_a_gpu_a_slot_weighs_as_its_tokens_do(seed, text, kind, plan):
    model, text = build(seed).to("cuda", kind), text.cuda()
    cache = distinct_cache(model, **plan, trace=True)
    greedy(model, text, cache, n=40)
    want = run(model, text[:, :5], unfolded(cache)).float()
    near = {"atol": 1e-3, "rtol": 0} if kind == torch.float32 else {"atol": 0.1, "rtol": 0.05}
    torch.testing.assert_close(run(model, text[:, :5], cache).float(), want, **near)


def test_drafts_are_verified_and_taken_back(tiny, text):
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
def test_drafts_can_be_taken_back_however_little_is_held(tiny, text, size):
    cache = distinct_cache(tiny, **size)
    tokens = greedy(tiny, text, cache, prompt_lookup_num_tokens=20, eos_token_id=63)
    assert cache.get_seq_length() == text.shape[1] + tokens.shape[1] - 1
    assert cache.summary().kept <= 0.4


def test_a_compiled_model_says_what_the_model_says(seed, text):
    model = build(seed, num_hidden_layers=1)
    both = (model, torch.compile(model, backend="eager"))
    caches = [distinct_cache(model, kept=0.5, care=CAREFUL) for _ in range(2)]
    for ids in (text, text[:, :1]):
        pairs = zip(both, caches, strict=True)
        assert torch.equal(*(one(ids, past_key_values=cache).logits for one, cache in pairs))
    torch._dynamo.reset()
