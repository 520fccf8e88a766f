"""Every architecture we name, from a tiny random configuration; and those we refuse."""

import pytest
import torch
import transformers
from transformers import DynamicCache

from distinctkv.hf import UnsupportedModelError, distinct_cache
from distinctkv.hf.model_support import MODELS
from tests.hf.models import KINDS, SMALL, build, filled, greedy, weighs_as_its_tokens


def test_every_known_architecture_is_tested():
    assert set(KINDS) == set(MODELS)


@pytest.fixture(scope="module", params=KINDS)
def model(request, seed):
    return build(seed, request.param)


@pytest.mark.parametrize(("length", "size"), [(120, {"kept": 1.0}), (20, {"threshold": 1.0})])
def test_with_nothing_merged_tokens_and_logits_are_those_of_a_dynamic_cache(
    model, text, length, size
):
    plain, ours, short = DynamicCache(), distinct_cache(model, **size), text[:, :length]
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


@pytest.mark.parametrize("length", [1, 5])
def test_a_slot_weighs_as_its_tokens_do(model, text, length):
    cache = filled(model, text, 1.0, trace=True)
    assert cache.n_slots_each()[0] < 0.8 * cache.n_heads * text.shape[1]
    weighs_as_its_tokens(model, text[:, :length], cache)


def test_heads_may_have_keys_of_their_own(seed, text):
    model = build(seed, num_key_value_heads=4)
    cache = filled(model, text, 1.0, trace=True)
    weighs_as_its_tokens(model, text[:, :4], cache)


def linear(model):
    model.config.layer_types = ["linear_attention", "full_attention", "full_attention"]


def one_layer(model):
    model.model.layers[1].self_attn.is_causal = False


SLIDING = {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}
REFUSED = [
    ("gpt2", {}, None, "'gpt2'"),
    ("gemma2", {"head_dim": 16}, None, "'gemma2'"),
    ("mamba", {}, None, "'mamba'"),
    ("mistral", {"sliding_window": 64}, None, "sliding_window is 64"),
    ("qwen2", SLIDING, None, "sliding_attention"),
    ("qwen3", KINDS["qwen3"], linear, "linear_attention"),
    ("gemma", KINDS["gemma"], one_layer, "not causal"),
    ("gemma", KINDS["gemma"], lambda m: setattr(m.config, "is_causal", False), "not causal"),
    (
        "gemma",
        KINDS["gemma"],
        lambda m: setattr(m.config, "use_bidirectional_attention", True),
        "not causal",
    ),
]


@pytest.mark.parametrize(("kind", "changes", "change", "word"), REFUSED)
def test_a_model_we_cannot_stand_behind_is_refused(seed, kind, changes, change, word):
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    if change is not None:
        change(model)
    before = model.config._attn_implementation
    with pytest.raises(UnsupportedModelError, match=word):
        distinct_cache(model)
    assert model.config._attn_implementation == before
