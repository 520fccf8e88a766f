"""Every architecture we name, from a tiny random configuration; and those we refuse."""

import pytest
import torch
import transformers
from transformers import DynamicCache

from distinctkv.hf import UnsupportedModelError, distinct_cache
from distinctkv.hf.model_support import MODELS
from tests.hf.models import KINDS, SMALL, build, greedy, unfolded


def test_every_known_architecture_is_tested():
    assert set(KINDS) == set(MODELS)


@pytest.fixture(scope="module", params=KINDS)
def model(request, seed):
    return build(seed, request.param)


def test_with_nothing_merged_tokens_and_logits_are_those_of_a_dynamic_cache(model, text):
    plain, ours = DynamicCache(), distinct_cache(model, kept=1.0)
    assert torch.equal(greedy(model, text, plain), greedy(model, text, ours))
    more = text[:, :5]
    logits = [model(more, past_key_values=cache).logits for cache in (plain, ours)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=0)


def test_a_short_text_is_exact_under_a_threshold(model, text):
    plain, ours = DynamicCache(), distinct_cache(model, 1.0)
    short = text[:, :20]
    assert torch.equal(greedy(model, short, plain), greedy(model, short, ours))
    logits = [model(text[:, :3], past_key_values=cache).logits for cache in (plain, ours)]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=0)


def test_no_memory_is_held_behind_a_view(model, text):
    plain, ours = DynamicCache(), distinct_cache(model, 1.0)
    for cache in (plain, ours):
        model(text[:, :20], past_key_values=cache)
    held = [layer.keys.nbytes + layer.values.nbytes for layer in plain.layers]
    small = 20 * 4 + 20  # positions, and whether they are padding, shared by all layers
    small += sum(layer.received.nbytes for layer in ours.layers)
    small += sum(layer.counted.nbytes for layer in ours.layers)  # queries, which crop needs
    assert ours.nbytes - ours.summary().metric == sum(held) + small


@pytest.mark.parametrize("length", [1, 5])
def test_a_slot_weighs_as_its_tokens_do(model, text, length):
    cache = distinct_cache(model, 1.0, trace=True)
    model(text, past_key_values=cache)
    assert cache.n_slots_each()[0] < 0.8 * cache.n_heads * text.shape[1]
    plain, more = unfolded(cache), text[:, :length]
    want = model(more, past_key_values=plain).logits
    got = model(more, past_key_values=cache).logits
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


def test_another_cache_is_as_good_as_before_on_a_prepared_model(seed, text):
    model = build(seed)
    before = greedy(model, text, DynamicCache())
    distinct_cache(model)
    mask = torch.ones_like(text)
    mask[:, :7] = 0
    padded = [model(text, attention_mask=mask).logits[:, 7:]]
    model.set_attn_implementation("sdpa")
    padded.append(model(text, attention_mask=mask).logits[:, 7:])
    assert torch.equal(before, greedy(model, text, DynamicCache()))
    assert torch.equal(*padded)


def test_heads_may_have_keys_of_their_own(seed, text):
    model = build(seed, num_key_value_heads=4)
    cache = distinct_cache(model, 1.0, trace=True)
    model(text, past_key_values=cache)
    plain, more = unfolded(cache), text[:, :4]
    want = model(more, past_key_values=plain).logits
    torch.testing.assert_close(model(more, past_key_values=cache).logits, want, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("gpt2", {}, "'gpt2' is not supported"),
        ("gemma2", {"head_dim": 16}, "'gemma2' is not supported"),
        ("mamba", {}, "'mamba' is not supported"),
        ("mistral", {"sliding_window": 64}, "sliding_window is 64"),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
            "sliding_attention",
        ),
    ],
)
def test_a_model_we_cannot_stand_behind_is_refused(seed, kind, changes, said):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    before = model.config._attn_implementation
    with pytest.raises(UnsupportedModelError, match=said):
        distinct_cache(model)
    assert model.config._attn_implementation == before


def test_linear_layers_are_refused(seed):
    model = build(seed, "qwen3")
    model.config.layer_types = ["linear_attention", "full_attention", "full_attention"]
    with pytest.raises(UnsupportedModelError, match=r"type \['linear_attention'\] have a cache"):
        distinct_cache(model)


@pytest.mark.parametrize("said", ["is_causal", "use_bidirectional_attention", "layer"])
def test_attention_in_both_directions_is_refused(seed, said):
    model = build(seed, "gemma")
    if said == "layer":
        model.model.layers[1].self_attn.is_causal = False
    else:
        setattr(model.config, said, said != "is_causal")
    with pytest.raises(UnsupportedModelError, match="attention is not causal"):
        distinct_cache(model)
