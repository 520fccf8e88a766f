"""Bad input: a typed error, and a cache that is as it was; interrupted passes."""

import copy

import pytest
import torch

from distinctkv.hf import (
    BrokenForwardError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
    distinct_cache,
)
from tests.hf.models import build, filled

ONE, TWO = torch.tensor([[3]]), torch.tensor([[3, 4]])


@pytest.fixture
def full(tiny, text):
    """A cache that has seen the text."""
    cache = filled(tiny, text, 1.0)
    return cache


def after(tiny, cache):
    return tiny(TWO, past_key_values=cache).logits


@pytest.fixture
def unchanged(tiny, full):
    """What follows is as if nothing had been tried."""
    want = after(tiny, copy.deepcopy(full))
    yield
    assert torch.equal(after(tiny, full), want)


def mask(*values):
    return {"attention_mask": torch.tensor([[*values]])}


def positions(*values):
    return {"position_ids": torch.tensor([values])}


BAD = [
    (ONE, mask(*[1] * 50, 0, *[1] * 70), MaskError, "left"),
    (ONE, mask(*[1] * 120, 0), MaskError, "left"),
    (ONE, mask(*[1] * 120), MaskError, "121"),
    (ONE, mask(*[0] * 5, *[1] * 116), MaskError, "earlier passes"),
    (TWO, {"attention_mask": torch.zeros(1, 1, 2, 122)}, MaskError, "float32"),
    (TWO, {"attention_mask": torch.ones(1, 1, 2, 122) > 0}, MaskError, "causal"),
    (ONE, {"attention_mask": torch.ones(4, 1, 1, 121) > 0}, MaskError, "1 sequences"),
    (TWO, positions(119, 120), PositionError, "grow"),
    (TWO, positions(121, 121), PositionError, "position 121"),
    (ONE.repeat(2, 1), {}, ValueError, "holds 1 sequences"),
    (TWO, {"is_causal": False}, UnsupportedModelError, "is_causal"),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("ids", "options", "error", "word"), BAD)
def test_bad_input_raises_before_anything_changes(tiny, full, ids, options, error, word):
    with pytest.raises(error, match=word):
        tiny(ids, past_key_values=full, **options)


def test_a_4d_mask_may_be_causal_with_padding(tiny, text):
    causal = torch.ones(120, 120, dtype=torch.bool).tril()[None, None]
    plain, given = (distinct_cache(tiny, 1.0) for _ in range(2))
    want = tiny(text, past_key_values=plain).logits
    torch.testing.assert_close(
        tiny(text, attention_mask=causal, past_key_values=given).logits, want, atol=1e-4, rtol=0
    )


def test_a_mask_that_is_left_out_later_raises(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache, **mask(*[0] * 3, *[1] * 117))
    with pytest.raises(MaskError, match=r"padded by \[3\], but this pass has no"):
        tiny(text[:, :1], past_key_values=cache)


@pytest.mark.parametrize("size", [{"threshold": 1.0}, {"kept": 1.0}])
def test_another_model_raises_whether_prepared_or_not(seed, tiny, text, size):
    cache, other = distinct_cache(tiny, **size), build(seed + 1)
    tiny(text, past_key_values=cache)
    want = after(tiny, copy.deepcopy(cache))
    for attention in ("sdpa", "eager"):
        other.set_attn_implementation(attention)
        for tokens in (1, 5):
            with pytest.raises(WrongModelError, match="for another model, or for one"):
                other(text[:, :tokens], past_key_values=cache)
    distinct_cache(other)
    with pytest.raises(WrongModelError, match="made for another model; make one"):
        other(text[:, :1], past_key_values=cache)
    with pytest.raises(WrongModelError, match="2 heads of 16, the cache 2 of 8"):
        build(seed, "qwen3")(text[:, :1], past_key_values=cache)
    assert torch.equal(after(tiny, cache), want)


@pytest.mark.parametrize("first", [10, 36])
def test_tokens_by_another_attention_are_noticed(seed, text, first):
    model = build(seed)
    cache = distinct_cache(model, 1.0)
    if first == 10:
        model(text[:, :10], past_key_values=cache)
    model.set_attn_implementation("sdpa")
    model(text[:, cache.get_seq_length() : 36], past_key_values=cache)  # nothing merges yet
    with pytest.raises(UnsupportedModelError, match="'sdpa', which cannot read slots"):
        model(text[:, :1], past_key_values=cache)
    model.set_attn_implementation("distinctkv")
    with pytest.raises(UnsupportedModelError, match="of 36 tokens came by another attention"):
        model(text[:, :1], past_key_values=cache)


def fail(*_, **__):
    raise torch.OutOfMemoryError


def test_unsupported_calls_raise(seed, text):
    model = build(seed, "mistral")
    cache = distinct_cache(model, 1.0)
    model.config.sliding_window = 500
    with pytest.raises(UnsupportedModelError, match="called with sliding_window"):
        model(text, past_key_values=cache)
    model = build(seed, attention_dropout=0.1).train()
    with pytest.raises(UnsupportedModelError, match=r"dropout is 0\.1"):
        model(text, past_key_values=distinct_cache(model, 1.0))


def test_keys_that_are_not_finite_raise(seed, text):
    model = build(seed)
    model.model.layers[1].self_attn.v_proj.weight[0, 0] = torch.inf
    with pytest.raises(FloatingPointError, match="not finite"):
        model(text, past_key_values=distinct_cache(model, 1.0))


def test_a_model_in_another_dtype_raises_and_the_cache_stays_as_it_is(seed, text):
    model = build(seed)
    caches = [distinct_cache(model, 1.0) for _ in range(2)]
    for cache in caches:
        model(text, past_key_values=cache)
    for weight in model.parameters():  # the rotary frequencies stay as they are
        weight.data = weight.data.bfloat16()
    with pytest.raises(WrongModelError, match=r"the cache holds torch\.float32 on cpu"):
        model(text[:, :3], past_key_values=caches[0])
    model.load_state_dict(build(seed).state_dict(), assign=True)
    logits = [model(text[:, :3], past_key_values=cache).logits for cache in caches]
    assert torch.equal(*logits)


@pytest.mark.parametrize("place", [
    "cache.sdpa", "cache.read", "cache.attention_received", "merge._shorten", "merge.pool", "layer",
])  # fmt: skip
def test_an_interrupted_pass_marks_the_cache(seed, text, tmp_path, monkeypatch, place):
    # Not public: errors of the device come from the middle of a pass.
    model = build(seed)
    cache = distinct_cache(model, 1.0)
    if place not in ("cache.sdpa", "layer"):  # from the second pass on slots are read
        model(text, past_key_values=cache)
    with monkeypatch.context() as patched:
        if place == "layer":
            patched.setattr(model.model.layers[1], "forward", fail)
        else:
            patched.setattr(f"distinctkv.hf.{place}", fail)
        with pytest.raises(torch.OutOfMemoryError):
            model(text, past_key_values=cache)
    uses = [
        lambda: model(text[:, :1], past_key_values=cache),
        lambda: cache.crop(-1),
        lambda: cache.save(tmp_path / "cache.safetensors"),
        lambda: cache.reorder_cache(torch.tensor([0])),
        cache.summary,
    ]
    for use in uses:
        with pytest.raises(BrokenForwardError, match="interrupted"):
            use()
    assert not (tmp_path / "cache.safetensors").exists()
    cache.reset()
    model(text, past_key_values=cache)
