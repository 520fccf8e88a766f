"""The press does in kvpress's hands what the cache does in ours."""

import pytest
import torch
from transformers import DynamicCache

from distinctkv.hf import Care, distinct_cache
from distinctkv.hf.attention import NAME, attention
from distinctkv.hf.errors import BrokenForwardError, WrongModelError
from distinctkv.hf.press import DistinctPress
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


def test_another_cache_is_not_read_with_the_bias_of_a_pressed_one(seed, text):
    model, other = build(seed), text.flip(1)
    want = greedy(model, other, DynamicCache())
    with DistinctPress(threshold=4.0)(model):
        model(text, past_key_values=DynamicCache())
    assert torch.equal(greedy(model, other, DynamicCache()), want)


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
