"""Bad input: each a typed error that names what was seen, and a cache that is none the worse."""

import copy

import pytest
import torch

from distinctkv import Concentration
from distinctkv.hf import (
    CAREFUL,
    BrokenForwardError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
    distinct_cache,
)
from tests.hf.models import build


@pytest.fixture
def full(tiny, text):
    """A cache that has seen the text."""
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    return cache


def after(tiny, cache):
    return tiny(torch.tensor([[3, 4]]), past_key_values=cache).logits


@pytest.fixture
def unhurt(tiny, text, full):
    """Go on as if nothing had been tried."""
    want = after(tiny, copy.deepcopy(full))
    yield
    assert torch.equal(after(tiny, full), want)


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize(
    "mask",
    [
        [1] * 50 + [0] + [1] * 70,  # a hole
        [1] * 120 + [0],  # padding on the right
        [0] * 5 + [1] * 116,  # padding nobody spoke of before
    ],
)
def test_a_mask_with_holes_is_refused(tiny, full, mask):
    with pytest.raises(MaskError, match=r"left|earlier ones said \[0\]"):
        tiny(torch.tensor([[3]]), attention_mask=torch.tensor([mask]), past_key_values=full)


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ([1] * 50 + [0] + [1] * 70, "has a hole at token 50 of stream 0; only padding on the left"),
        ([1] * 120, "leaves out the last 1 of 121 tokens of stream 0: it is too short"),
        ([1] * 100, "leaves out the last 21 of 121 tokens of stream 0: it is too short"),
    ],
)
def test_what_is_wrong_with_a_mask_is_said_with_its_place(tiny, full, mask, said):
    with pytest.raises(MaskError, match=said):
        tiny(torch.tensor([[3]]), attention_mask=torch.tensor([mask]), past_key_values=full)


@pytest.mark.usefixtures("unhurt")
def test_a_mask_of_ones_own_shape_is_refused(tiny, full):
    mask = torch.zeros(1, 1, 2, 122)
    with pytest.raises(MaskError, match="float32 of shape"):
        tiny(torch.tensor([[3, 4]]), attention_mask=mask, past_key_values=full)
    with pytest.raises(MaskError, match="not causal: token 120 of stream 0 must not see token 121"):
        tiny(torch.tensor([[3, 4]]), attention_mask=mask == 0, past_key_values=full)


@pytest.mark.usefixtures("unhurt")
def test_a_mask_that_differs_from_head_to_head_is_refused(tiny, full):
    mask = torch.ones(1, 4, 1, 121, dtype=torch.bool)
    mask[:, 1, :, 3:60] = False
    with pytest.raises(MaskError, match=r"shape \(1, 4, 1, 121\) differs from head to head"):
        tiny(torch.tensor([[3]]), attention_mask=mask, past_key_values=full)


def test_a_mask_that_is_the_same_for_every_head_is_a_mask(tiny, text):
    mask = torch.ones(120, 120, dtype=torch.bool).tril().expand(1, 4, 120, 120)
    tiny(text, attention_mask=mask, past_key_values=distinct_cache(tiny, 1.0))


def test_a_mask_that_is_left_out_later_is_refused(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    mask = torch.ones_like(text)
    mask[:, :3] = 0
    tiny(text, attention_mask=mask, past_key_values=cache)
    with pytest.raises(MaskError, match=r"padded by \[3\], this pass has no"):
        tiny(text[:, :1], past_key_values=cache)


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize("positions", [[119, 120], [0, 1], [121, 121], [122, 121]])
def test_positions_that_do_not_grow_are_refused(tiny, full, positions):
    with pytest.raises(PositionError, match="positions must grow"):
        tiny(
            torch.tensor([[3, 4]]),
            position_ids=torch.tensor([positions]),
            past_key_values=full,
        )


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize("positions", [[120.5, 121.5], [120, 2**31]])
def test_positions_that_no_token_can_have_are_refused(tiny, full, positions):
    at = torch.tensor([positions])
    with pytest.raises(PositionError, match=f"whole numbers up to 2147483647, got {at.dtype}"):
        tiny(torch.tensor([[3, 4]]), position_ids=at, past_key_values=full)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.uint32])
def test_positions_of_any_whole_type_are_positions(tiny, text, kind):
    cache, logits = distinct_cache(tiny, 1.0), []
    tiny(text, past_key_values=cache)
    for at in (torch.tensor([[120]]), torch.tensor([[120]]).to(kind)):
        one = copy.deepcopy(cache)
        logits.append(tiny(text[:, :1], position_ids=at, past_key_values=one).logits)
    assert torch.equal(*logits)


@pytest.mark.usefixtures("unhurt")
def test_a_mask_of_other_streams_is_refused(tiny, full):
    mask = torch.ones(4, 1, 1, 121, dtype=torch.bool)
    with pytest.raises(MaskError, match=r"\(4, 1, 1, 121\), not one of 121 tokens of 1 streams"):
        tiny(torch.tensor([[3]]), attention_mask=mask, past_key_values=full)


@pytest.mark.usefixtures("unhurt")
def test_another_number_of_streams_is_refused(tiny, full):
    with pytest.raises(ValueError, match="holds 1 streams, this pass has 2"):
        tiny(torch.tensor([[3], [4]]), past_key_values=full)


@pytest.mark.usefixtures("unhurt")
def test_another_model_is_refused_whether_prepared_or_not(seed, full, text):
    other = build(seed + 1)
    for attention in ("sdpa", "eager"):
        other.set_attn_implementation(attention)
        for tokens in (1, 5):
            with pytest.raises(WrongModelError, match="for another model, or for one of which"):
                other(text[:, :tokens], past_key_values=full)
    distinct_cache(other)
    with pytest.raises(WrongModelError, match="made for another model; make one"):
        other(text[:, :1], past_key_values=full)


def test_nothing_merged_is_nothing_for_another_model_either(seed, tiny, text):
    cache = distinct_cache(tiny, kept=1.0)
    tiny(text, past_key_values=cache)
    want = after(tiny, copy.deepcopy(cache))
    other = build(seed + 1)
    for _ in range(2):
        with pytest.raises(WrongModelError, match="made for another model"):
            other(text[:, :3], past_key_values=cache)
        distinct_cache(other)  # which sets its attention to ours
    assert torch.equal(after(tiny, cache), want)


@pytest.mark.usefixtures("unhurt")
def test_a_model_of_another_shape_is_refused(seed, full, text):
    other = build(seed, "qwen3")
    with pytest.raises(WrongModelError, match="2 heads of 16 came to a cache of 2 of 8"):
        other(text[:, :1], past_key_values=full)


def test_attention_that_cannot_read_slots_is_refused(seed, text):
    model = build(seed)
    cache = distinct_cache(model, 1.0)
    model.set_attn_implementation("sdpa")
    model(text[:, :36], past_key_values=cache)  # sinks and recent: nothing to merge yet
    with pytest.raises(UnsupportedModelError, match="'sdpa', which cannot read slots"):
        model(text[:, :1], past_key_values=cache)
    model.set_attn_implementation("distinctkv")
    with pytest.raises(UnsupportedModelError, match="36 of 36 tokens came under another"):
        model(text[:, :1], past_key_values=cache)


@pytest.mark.parametrize("length", [1, 45])
def test_tokens_that_came_under_another_attention_are_noticed(seed, text, length):
    model = build(seed)
    cache = distinct_cache(model, 1.0)
    model(text[:, :10], past_key_values=cache)
    model.set_attn_implementation("sdpa")
    model(text[:, 10:15], past_key_values=cache)
    model.set_attn_implementation("distinctkv")
    with pytest.raises(UnsupportedModelError, match="5 of 15 tokens came under another"):
        model(text[:, :length], past_key_values=cache)


@pytest.mark.usefixtures("unhurt")
def test_attention_in_both_directions_is_refused_when_it_is_asked_for(tiny, full):
    with pytest.raises(UnsupportedModelError, match="asked for is_causal=False"):
        tiny(torch.tensor([[3, 4]]), is_causal=False, past_key_values=full)


@pytest.mark.usefixtures("unhurt")
@pytest.mark.parametrize("layer", [0, 2])
def test_attention_in_both_directions_is_refused_when_it_is_set_later(
    tiny, full, text, monkeypatch, layer
):
    with monkeypatch.context() as context:
        context.setattr(tiny.model.layers[layer].self_attn, "is_causal", False)
        with pytest.raises(UnsupportedModelError, match="is not causal"):
            tiny(text, past_key_values=full)


def test_a_pass_that_was_cut_short_is_noticed(seed, text):
    model = build(seed)
    cache = distinct_cache(model, 1.0)

    def fail(*_):
        raise KeyboardInterrupt

    hook = model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        model(text, past_key_values=cache)
    hook.remove()
    with pytest.raises(BrokenForwardError, match="cut short after 120 tokens"):
        model(text[:, :1], past_key_values=cache)
    cache.reset()
    model(text, past_key_values=cache)


@pytest.mark.parametrize("attention", ["stock", "read"])
def test_an_error_in_the_first_attention_marks_the_cache(seed, text, monkeypatch, attention):
    model = build(seed)
    cache = distinct_cache(model, 1.0)
    if attention == "read":  # from the second pass on slots are read
        model(text, past_key_values=cache)

    def fail(*_, **__):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(f"distinctkv.hf.cache.{attention}", fail)
        with pytest.raises(torch.OutOfMemoryError):
            model(text, past_key_values=cache)
    for use in (lambda: model(text[:, :1], past_key_values=cache), cache.summary):
        with pytest.raises(BrokenForwardError, match="cut short"):
            use()


def test_a_pass_that_was_cut_short_while_merging_leaves_nothing_to_use(
    seed, text, tmp_path, monkeypatch
):
    model = build(seed)
    cache = distinct_cache(model, 1.0)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("distinctkv.hf.merge._shorten", fail)
        with pytest.raises(MemoryError):
            model(text, past_key_values=cache)
    uses = [
        lambda: model(text[:, :1], past_key_values=cache),
        lambda: cache.crop(-1),
        lambda: cache.save(tmp_path / "cache.safetensors"),
        lambda: cache.reorder_cache(torch.tensor([0])),
        cache.summary,
    ]
    for use in uses:
        with pytest.raises(BrokenForwardError, match=r"reset\(\) the cache"):
            use()
    assert not (tmp_path / "cache.safetensors").exists()


@pytest.mark.parametrize("first", [40, 100, 256])
def test_a_part_is_kept_however_the_text_comes(seed, first):
    model = build(seed)
    text = torch.randint(0, 64, (1, 60), generator=torch.Generator().manual_seed(seed))
    text = text.repeat(1, 20)
    cache = distinct_cache(model, kept=0.25)
    model(text[:, :first], past_key_values=cache)
    for piece in text[:, first:].split(100, 1):
        model(piece, past_key_values=cache)
    assert 0.9 * 0.25 <= cache.summary().kept <= 0.25


def test_padding_does_not_cool_a_surprised_cache(seed, text):
    model = build(seed)
    plan = {"surprise": Concentration.surprise(tau=0.05, base=45, gain=40), "recent": 8}
    alone = distinct_cache(model, **plan)
    model(text, past_key_values=alone)
    padded = torch.cat((torch.zeros(1, 200, dtype=torch.long), text), 1)
    mask = (torch.arange(padded.shape[1]) >= 200).long()[None]
    beside = distinct_cache(model, **plan)
    model(padded, attention_mask=mask, past_key_values=beside)
    assert beside.sizing.temperatures == pytest.approx(alone.sizing.temperatures)
    assert beside.n_slots(0) == alone.n_slots(0)


def test_a_window_that_is_set_later_is_refused(seed, text):
    model = build(seed, "mistral")
    cache = distinct_cache(model, 1.0)
    model.config.sliding_window = 500
    with pytest.raises(UnsupportedModelError, match="asked for sliding_window"):
        model(text, past_key_values=cache)


def test_training_is_refused(seed, text):
    model = build(seed, attention_dropout=0.1).train()
    with pytest.raises(UnsupportedModelError, match=r"dropout is 0\.1"):
        model(text, past_key_values=distinct_cache(model, 1.0))


def test_keys_that_are_not_finite_are_refused(seed, text):
    model = build(seed)
    model.model.layers[1].self_attn.v_proj.weight[0, 0] = torch.inf
    with pytest.raises(FloatingPointError, match="not finite"):
        model(text, past_key_values=distinct_cache(model, 1.0))


def test_a_model_in_another_type_is_refused_and_the_cache_stays_as_it_is(seed, text):
    model = build(seed)
    caches = [distinct_cache(model, 1.0, care=CAREFUL) for _ in range(2)]
    for cache in caches:
        model(text, past_key_values=cache)
    for kind in (torch.float64, torch.bfloat16):
        moved = copy.deepcopy(model).to(kind)
        for ours, theirs in zip(model.parameters(), moved.parameters(), strict=True):
            ours.data = theirs.data
        with pytest.raises(WrongModelError, match=r"the cache holds torch\.float32 on cpu"):
            model(text[:, :3], past_key_values=caches[0])
    model.load_state_dict(build(seed).state_dict())
    model.to(torch.float32)
    logits = [model(text[:, :3], past_key_values=cache).logits for cache in caches]
    assert torch.equal(*logits)
