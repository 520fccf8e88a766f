"""The press does in kvpress's hands what the cache does in ours."""

from contextlib import nullcontext
from copy import deepcopy
from io import BytesIO

import pytest
import torch
from transformers import DynamicCache

from benchmarks.llm.press import DistinctPress
from distinctkv.hf import Care, distinct_cache
from distinctkv.hf.attention import attention
from distinctkv.hf.config import (
    NAME,
    BrokenForwardError,
    CropError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
)
from tests.hf.models import build, greedy

SIZES = [
    ({"threshold": 1.0}, {"threshold": 1.0}),
    ({"compression_ratio": 0.6}, {"kept": 0.4}),
    ({"threshold": 2.0, "care": Care(cap=2)}, {"threshold": 2.0, "care": Care(cap=2)}),
]


@pytest.mark.parametrize(("pressed", "sized"), SIZES)
def test_logits_after_a_press_are_those_of_the_cache(seed, text, pressed, sized):
    model, plain = build(seed), DynamicCache()
    with DistinctPress(**pressed)(model):
        model(text, past_key_values=plain)
    positions = torch.arange(120, 125)[None]
    got = model(text[:, :5], past_key_values=plain, position_ids=positions).logits
    cache = distinct_cache(model, **sized)
    model(text, past_key_values=cache)
    want = model(text[:, :5], past_key_values=cache).logits
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_generate_works_inside(seed, text):
    model = build(seed)
    with DistinctPress(threshold=1.0)(model):
        tokens = greedy(model, text, DynamicCache())
    # Ours merges what it generates, too, but not the last 32 tokens.
    assert torch.equal(tokens, greedy(model, text, distinct_cache(model, 1.0)))


def test_nothing_pressed_is_nothing_changed(seed, text):
    model = build(seed)
    want = greedy(model, text, DynamicCache())
    with DistinctPress(compression_ratio=0.0)(model):
        assert torch.equal(greedy(model, text, DynamicCache()), want)
    assert torch.equal(greedy(model, text, DynamicCache()), want)


@pytest.mark.parametrize("begin", ["the same", "another"])
def test_another_cache_is_not_read_with_the_bias_of_a_pressed_one(seed, text, begin):
    model, other = build(seed), text.flip(1)
    if begin == "the same":
        other[:, 0] = text[:, 0]
    want = greedy(model, other, DynamicCache())
    with DistinctPress(threshold=4.0)(model):
        model(text, past_key_values=DynamicCache())
    assert torch.equal(greedy(model, other, DynamicCache()), want)


AT = torch.tensor([[120]])  # after the text


@pytest.fixture
def pressed(seed, text):
    """A model, two texts in a pressed cache, and the logits of a token after them."""
    model, both, plain = build(seed), torch.cat((text, text.flip(1))), DynamicCache()
    with DistinctPress(threshold=1.0)(model):
        model(both, past_key_values=plain)
    want = model(both[:, :1], past_key_values=deepcopy(plain), position_ids=AT).logits
    return model, plain, want


def test_each_of_several_pressed_caches_is_read_with_its_own_bias(pressed, text):
    model, plain, want = pressed
    with DistinctPress(threshold=4.0)(model):
        model(text, past_key_values=DynamicCache())
    tokens = torch.cat((text, text.flip(1)))[:, :1]
    got = model(tokens, past_key_values=plain, position_ids=AT).logits
    assert torch.equal(got, want)


@pytest.mark.parametrize("move", ["reorder_cache", "batch_select_indices"])
def test_streams_of_a_pressed_cache_can_be_moved(pressed, text, move):
    model, plain, want = pressed
    getattr(plain, move)(torch.tensor([1, 0]))
    plain.batch_repeat_interleave(2)
    tokens = torch.cat((text.flip(1), text))[:, :1].repeat_interleave(2, 0)
    got = model(tokens, past_key_values=plain, position_ids=AT).logits
    torch.testing.assert_close(got, want[[1, 1, 0, 0]], atol=1e-5, rtol=0)


def test_a_pressed_cache_is_refused_by_an_attention_that_does_not_know_its_bias(pressed):
    model, plain, _ = pressed
    model.set_attn_implementation("sdpa")
    with pytest.raises(UnsupportedModelError, match="'sdpa', for which a slot"):
        model(torch.tensor([[3], [3]]), past_key_values=plain, position_ids=AT)


def test_positions_must_go_on_after_a_press(pressed, text):
    model, plain, want = pressed
    tokens = torch.cat((text, text.flip(1)))[:, :1]
    with pytest.raises(PositionError, match=r"after a context that ends at \[119, 119\]"):
        model(tokens, past_key_values=plain)  # they are counted by columns
    got = model(tokens, past_key_values=plain, position_ids=AT).logits
    assert torch.equal(got, want)


def test_positions_that_stay_where_they_are_are_refused_after_a_press(pressed, text):
    model, plain, _ = pressed
    tokens = torch.cat((text, text.flip(1)))[:, :3]
    padded = torch.tensor([[120, 121, 122], [120, 120, 121]])  # as a question is with padding
    with pytest.raises(PositionError, match="or do not grow"):
        model(tokens, past_key_values=plain, position_ids=padded)


def hidden(columns, *places):
    """A mask over so many columns that hides these of the first stream."""
    mask = torch.ones(2, columns, dtype=torch.long)
    mask[0, list(places)] = 0
    return mask


@pytest.mark.parametrize("places", [[-1], [-2], [0], [7], range(-3, 0)])
def test_a_mask_that_hides_tokens_is_refused_after_a_press(pressed, text, places):
    model, plain, want = pressed
    tokens = torch.cat((text, text.flip(1)))[:, :3]
    given = {"past_key_values": plain, "position_ids": torch.tensor([[120, 121, 122]])}
    mask = hidden(plain.get_seq_length() + 3, *places)
    with pytest.raises(MaskError, match="leave attention_mask out"):
        model(tokens, attention_mask=mask, **given)
    got = model(tokens[:, :1], past_key_values=plain, position_ids=AT).logits
    assert torch.equal(got, want)


@pytest.mark.parametrize("more", [0, 60])
def test_a_mask_that_hides_nothing_is_a_mask_after_a_press(pressed, text, more):
    model, plain, want = pressed
    tokens = torch.cat((text, text.flip(1)))[:, :1]
    mask = hidden(plain.get_seq_length() + 1 + more)
    got = model(tokens, attention_mask=mask, past_key_values=plain, position_ids=AT).logits
    assert torch.equal(got, want)


def test_generate_with_padding_longer_than_what_is_pressed_is_generate_alone(seed, text):
    model = build(seed)
    short = text[:, -20:]
    ids = torch.cat((text, torch.cat((torch.zeros_like(text[:, :100]), short), 1)))
    mask = (torch.arange(120) >= torch.tensor([[0], [100]])).long()
    answers = []
    for given in ({"input_ids": ids, "attention_mask": mask}, {"input_ids": short}):
        with DistinctPress(threshold=4.0, recent=4)(model):
            out = model.generate(**given, past_key_values=DynamicCache(), max_new_tokens=8)
        answers.append(out[-1, -8:])
    assert torch.equal(*answers)


def test_a_copy_of_a_pressed_cache_answers_the_same_and_a_pickle_is_refused(pressed, text):
    model, plain, want = pressed
    tokens = torch.cat((text, text.flip(1)))[:, :1]
    for cache in (deepcopy(plain), plain):
        got = model(tokens, past_key_values=cache, position_ids=AT).logits
        assert torch.equal(got, want)
        with pytest.raises(TypeError, match="a cache belongs to its model"):
            torch.save(cache, BytesIO())


def test_tokens_can_be_taken_back_after_a_press(pressed, text):
    model, plain, _ = pressed
    both = torch.cat((text, text.flip(1)))
    plain.crop(-3)
    got = model(both[:, :1], past_key_values=plain, position_ids=AT - 3).logits
    cache = distinct_cache(model, 1.0)
    model(both, past_key_values=cache)
    cache.crop(-3)
    want = model(both[:, :1], past_key_values=cache).logits
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_slots_cannot_be_taken_back(pressed, text):
    model, plain, _ = pressed
    plain.crop(-33)
    with pytest.raises(CropError, match=r"the last 33 columns .* only 32 of them were tokens"):
        model(torch.tensor([[3], [3]]), past_key_values=plain, position_ids=AT)


@pytest.mark.parametrize("attention", [NAME, "sdpa"])
def test_a_pressed_cache_that_was_reset_is_as_any_other(pressed, text, attention):
    model, plain, _ = pressed
    plain.reset()
    model.set_attn_implementation(attention)
    got = greedy(model, text, plain)
    assert torch.equal(got, greedy(model, text, DynamicCache()))


def test_nothing_pressed_of_padded_texts_is_nothing_changed(seed, text):
    model, logits = build(seed), []
    mask = torch.ones_like(text)
    mask[:, :9] = 0
    for ratio in (None, 0.0):
        plain = DynamicCache()
        with DistinctPress(compression_ratio=ratio)(model) if ratio == 0.0 else nullcontext():
            model(text, past_key_values=plain, attention_mask=mask)
        more = torch.cat((mask, mask[:, -1:]), 1)
        logits.append(model(text[:, :1], past_key_values=plain, attention_mask=more).logits)
    torch.testing.assert_close(*logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("before", ["pressed", "ours"])
def test_a_press_of_kvpress_does_its_work_on_a_model_of_ours(seed, text, monkeypatch, before):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model, sdpa, asked = build(seed), ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def wrapped(*args, **options):  # as kvpress does when it is imported
        asked.append(args[1].shape[2])
        return sdpa(*args, **options)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", wrapped)
    if before == "ours":
        model(text, past_key_values=distinct_cache(model, 1.0))
    else:
        with DistinctPress(threshold=1.0)(model):
            model(text, past_key_values=DynamicCache())
    assert not asked
    model(text, past_key_values=DynamicCache())
    assert asked == [120] * 3


def test_the_pipeline_answers_several_questions_of_one_context(seed, tokenizer):
    kvpress = pytest.importorskip("kvpress", reason="it has an environment of its own")
    tokenizer.bos_token = "<unk>"
    pipe = kvpress.KVPressTextGenerationPipeline(model=build(seed), tokenizer=tokenizer)
    context = "the cache grows with what is new in a text " * 12
    asked = {"max_new_tokens": 4, "press": DistinctPress(compression_ratio=0.5)}
    both = pipe(context, questions=["what is new", "a text"], **asked)["answers"]
    alone = [pipe(context, question=q, **asked)["answer"] for q in ("what is new", "a text")]
    assert both == alone


def test_the_cache_works_where_every_attention_is_wrapped(seed, text, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = build(seed)
    want = greedy(model, text, distinct_cache(model, 1.0))
    looked = []

    def wrapped(module, query, key, *rest, **options):  # as kvpress does when it is imported
        looked.append((query.shape[2], key.shape[2]))
        if query.shape[2] < key.shape[2] and masked:
            key[0, 0, 1] = 0.0
        return attention(module, query, key, *rest, **options)

    masked = False
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, NAME, wrapped)
    assert torch.equal(greedy(model, text, distinct_cache(model, 1.0)), want)
    assert looked[0] == (120, 120)
    assert looked[-1] == (1, 120 + want.shape[1] - 1)
    masked = True  # by a press that was used before
    with pytest.raises(WrongModelError, match="mask of a press"):
        greedy(model, text, distinct_cache(model, 1.0))


def test_a_press_around_a_cache_of_ours_is_refused(seed, text):
    model = build(seed)
    cache = distinct_cache(model, 1.0)

    def prune(module, *_):
        layer = cache.layers[module.layer_idx]
        layer.keys, layer.values = layer.keys[:, :, ::2], layer.values[:, :, ::2]

    for block in model.model.layers:
        block.self_attn.register_forward_hook(prune)
    with pytest.raises(BrokenForwardError, match="layer 0 holds 60 columns of 120: something else"):
        model(text, past_key_values=cache)
    with pytest.raises(BrokenForwardError, match="cut short"):
        model(text[:, :1], past_key_values=cache)


def test_what_is_wrong_is_told_before_the_prefill(seed):
    model = build(seed)
    with (
        pytest.raises(ValueError, match=r"compression_ratio must lie in \[0, 1\), got 2; 0.75"),
        DistinctPress(compression_ratio=2)(model),
    ):
        pass
    with pytest.raises(ValueError, match="choose one"), DistinctPress(1.0, 0.5)(model):
        pass
