"""Un-rotated keys are the keys the model had before it turned them, for every kind of scaling."""

import pytest
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from distinctkv.hf import DistinctCache, PositionError, calibrate, distinct_cache
from distinctkv.hf.model_support import ModelSpec
from tests.hf.models import build, filled
from tests.hf.rotary_reference import turned

SCALINGS = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


if "proportional" in ROPE_INIT_FUNCTIONS:  # in newer transformers
    SCALINGS["proportional"] = {"rope_type": "proportional", "partial_rotary_factor": 0.5}


def scaled(seed, scaling, **changes):
    """A model with this scaling, in the words of the transformers that is here."""
    if int(transformers.__version__.split(".")[0]) < 5:
        if "original_max_position_embeddings" in scaling:
            changes["original_max_position_embeddings"] = 64
        return build(seed, rope_scaling=dict(scaling), rope_theta=10000.0, **changes)
    return build(seed, rope_parameters={**scaling, "rope_theta": 10000.0}, **changes)


def test_every_scaling_that_transformers_has_is_tested():
    assert set(ROPE_INIT_FUNCTIONS) <= set(SCALINGS)


@pytest.mark.parametrize("kind", SCALINGS)
def test_keys_before_rotation_come_back(seed, kind, text):
    model = scaled(seed, SCALINGS[kind])
    before = []
    model.model.layers[0].self_attn.k_proj.register_forward_hook(
        lambda module, given, out: before.append(out)
    )
    cache = filled(model, text, kept=1.0)
    keys = cache.layers[0].keys[0]
    positions = torch.arange(text.shape[1]).expand(keys.shape[:2])
    back = cache.spec.rotary.unrotate(keys, positions)
    want = before[0].view(text.shape[1], *keys.shape[::2]).transpose(0, 1)
    torch.testing.assert_close(back, want, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "phi3"])
def test_a_distance_is_the_error_in_a_logit_where_rotation_stretches_keys_and_queries(
    seed, text, kind
):
    turned = torch.arange(8) < (4 if kind == "phi3" else 8)  # it turns half of a key
    model = build(seed, kind)
    model.model.rotary_emb.attention_scaling = 1.5  # as yarn and longrope have
    attention, asked = model.model.layers[0].self_attn, []
    project = attention.qkv_proj if kind == "phi3" else attention.q_proj
    project.register_forward_hook(lambda module, given, out: asked.append(out[0, :, :32]))
    scale = calibrate(model, [text]).scales([0], 1, torch.device("cpu"))
    gap = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(seed))
    far = scale.features(gap, torch.zeros(2, 1, 8)).square().sum(-1)[:, 0]
    queries = asked[0].view(-1, 2, 2, 8) * torch.where(turned, 1.5**2, 1.0)
    logits = attention.scaling * torch.einsum("lhgd,hd->lhg", queries, gap[:, 0])
    torch.testing.assert_close(far, logits.square().mean((0, 2)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [1, 3])
def test_turning_back_is_exact_in_float32(seed, device, kind, heads):
    rotary = ModelSpec.of(scaled(seed, SCALINGS["yarn"]).to(device)).rotary
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(2, 4, 3, 70, 12, generator=generator).to(device, kind)
    positions = torch.randint(0, 9000, (4, heads, 70), generator=generator).to(device)
    angles = positions[..., None].float() * rotary.frequencies
    want = turned(keys, angles.expand(2, 4, 3, 70, -1))
    want[..., : 2 * angles.shape[-1]] /= rotary.module.attention_scaling
    assert rotary.module.attention_scaling != 1
    real = positions > 1000
    got = rotary.unrotate(keys, positions, real)
    assert torch.equal(got, rotary.unrotate(keys, positions) * real[..., None])
    want = want * real[..., None]
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-5)


def goes_back(model, text):
    """Whether a short text is turned as before after a long one; in transformers 5.2 it is not."""
    model(text[:, :30])
    before = model.model.rotary_emb.inv_freq.clone()
    model(text)
    model(text[:, :30])
    return torch.equal(model.model.rotary_emb.inv_freq, before)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
@pytest.mark.parametrize("asked", ["select", "file"])
def test_another_text_that_moves_the_frequencies_changes_nothing_here(
    tmp_path, seed, text, kind, asked
):
    if not goes_back(scaled(seed, SCALINGS[kind], max_position_embeddings=100), text):
        pytest.skip("the model turns keys otherwise from now on, which is refused")
    model = scaled(seed, SCALINGS[kind], max_position_embeddings=100)
    found = []
    for meanwhile in (False, True):
        cache = filled(model, text[:, :30], 1.0, recent=8)
        for token in text[:, 30:34].split(1, dim=1):  # whose queries wait to be measured
            model(token, past_key_values=cache)
        if meanwhile:
            model(text, past_key_values=transformers.DynamicCache())
        if asked == "select":
            cache.reorder_cache(torch.tensor([0]))
        if asked == "file":
            cache.save(tmp_path / "cache.safetensors")
            cache = DistinctCache.load(tmp_path / "cache.safetensors", model)
        parts = text[:, 34:60].split(13, dim=1)
        logits = [model(part, past_key_values=cache).logits for part in parts]
        found.append([*logits, *(layer.moments.queries for layer in cache.layers)])
    for before, after in zip(*found, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize(("kind", "seen"), [("longrope", 60), ("dynamic", 99)])
def test_frequencies_that_move_under_the_slots_are_refused(seed, text, kind, seen):
    model = scaled(seed, SCALINGS[kind], max_position_embeddings=100)
    cache, at_once = (distinct_cache(model, 1.0) for _ in range(2))
    model(text[:, :seen], past_key_values=cache)
    with pytest.raises(PositionError, match=f"'{kind}' changed"):
        model(text[:, seen:], past_key_values=cache)
    if kind == "longrope":  # a long text in one pass has one set of them
        for ids in (text, text[:, :1]):
            model(ids, past_key_values=at_once)


@pytest.mark.parametrize(
    ("other", "word"),
    [("linear", "'linear'"), ("dynamic", "'dynamic'"), ("stretched", "attention_factor")],
)
def test_a_file_of_other_rotations_is_refused_at_once_or_at_the_next_pass(
    tmp_path, seed, text, other, word
):
    model, path = scaled(seed, SCALINGS["default"]), tmp_path / "cache.safetensors"
    wrong = scaled(seed, SCALINGS.get(other, SCALINGS["default"]))
    cache = filled(model, text, 1.0)
    cache.save(path)
    if other == "stretched":
        wrong.model.rotary_emb.attention_scaling = 1.5
    else:
        wrong.model.rotary_emb.inv_freq.mul_(0.5)
    with pytest.raises(PositionError, match=word):
        wrong(text, past_key_values=DistinctCache.load(path, wrong))
