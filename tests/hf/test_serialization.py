"""A cache in a file goes on as if it had never been away."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from distinctkv import Concentration, SnapshotError, snapshot
from distinctkv.hf import CAREFUL, Care, DistinctCache, WrongModelError, calibrate, distinct_cache
from distinctkv.hf.model_support import Anatomy
from distinctkv.hf.serialization import KIND
from tests.hf.models import build

SURPRISE = Concentration.surprise(1.0, base=50, gain=60)
PLANS = [
    {"threshold": 1.0, "trace": True},
    {"kept": 0.4},
    {"kept": 1.0},
    {"budget": 50},
    {"surprise": SURPRISE},
    {"kept": 0.5, "care": CAREFUL},
]


def scale(model, factor):
    for weight in model.model.parameters():
        weight.data *= factor


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_loaded_cache_goes_on_the_same(tmp_path, seed, text, plan, kind):
    model, tomorrow = build(seed).to(kind), build(seed).to(kind)
    cache = distinct_cache(model, **plan)
    model(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    again = DistinctCache.load(tmp_path / "cache.safetensors", tomorrow)
    assert again.nbytes == cache.nbytes
    for ids in (text[:, :50], text[:, 50:51], text[:, :30]):
        logits = model(ids, past_key_values=cache).logits
        assert torch.equal(tomorrow(ids, past_key_values=again).logits, logits)
    assert (cache.summary().slots == again.summary().slots).all()


def test_padding_and_a_calibrated_metric_are_saved_too(tmp_path, tiny, text):
    cache = distinct_cache(tiny, 1.0, metric=calibrate(tiny, [text]))
    mask = torch.ones(2, 120, dtype=torch.int64)
    mask[1, :20] = 0
    tiny(text.repeat(2, 1), attention_mask=mask, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    again = DistinctCache.load(tmp_path / "cache.safetensors", tiny)
    longer = torch.cat((mask, torch.ones(2, 40, dtype=torch.int64)), 1)
    logits = [
        tiny(text[:, :40].repeat(2, 1), attention_mask=longer, past_key_values=one).logits
        for one in (cache, again)
    ]
    assert torch.equal(*logits)


def test_a_file_from_before_values_could_be_attended_is_read(tmp_path, tiny, text):
    path = tmp_path / "cache.safetensors"
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    cache.save(path)
    arrays, state = snapshot.load(path, KIND)
    del state["plan"]["care"]["attended"]
    older = {name: array for name, array in arrays.items() if not name.endswith("slots.got")}
    assert len(older) == len(arrays) - len(cache.layers)
    snapshot.save(path, KIND, older, state)
    again = DistinctCache.load(path, tiny)
    more = text[:, :50]
    assert torch.equal(*(tiny(more, past_key_values=one).logits for one in (cache, again)))


def test_a_plan_in_numbers_of_numpy_is_saved_too(tmp_path, tiny, text):
    path, care = tmp_path / "cache.safetensors", Care(importance=np.float32(0.25), cap=np.int64(3))
    cache = distinct_cache(tiny, kept=np.float32(0.25), recent=8, care=care)
    tiny(text, past_key_values=cache)
    cache.save(path)
    assert DistinctCache.load(path, tiny).plan == cache.plan


@pytest.mark.parametrize("count", [np.int64(-2), torch.tensor(-2)])
def test_tokens_are_taken_back_by_any_whole_number(tmp_path, tiny, text, count):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    cache.crop(count)
    cache.save(tmp_path / "cache.safetensors")
    again = DistinctCache.load(tmp_path / "cache.safetensors", tiny)
    more = text[:, :3]
    assert torch.equal(*(tiny(more, past_key_values=one).logits for one in (cache, again)))


def test_an_empty_cache_is_saved_as_such(tmp_path, tiny, text):
    distinct_cache(tiny, kept=0.5).save(tmp_path / "cache.safetensors")
    cache = DistinctCache.load(tmp_path / "cache.safetensors", tiny)
    tiny(text, past_key_values=cache)
    assert cache.summary().kept <= 0.5


def test_another_model_cannot_load_it(tmp_path, seed, tiny, text):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    for other, said in ((build(seed + 1), "other weights"), (build(seed, "gemma"), "'llama'")):
        with pytest.raises(WrongModelError, match=f"this saved cache is for .*{said}"):
            DistinctCache.load(tmp_path / "cache.safetensors", other)


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "norm"])
@pytest.mark.parametrize("plan", [{"kept": 1.0}, {"threshold": 1.0}])
def test_a_model_that_was_trained_on_cannot_load_it(tmp_path, seed, text, part, plan):
    model, path = build(seed), tmp_path / "cache.safetensors"
    cache = distinct_cache(model, **plan)
    model(text, past_key_values=cache)
    cache.save(path)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if part in name and "layers.1" in name:
            rank = (4,) if weight.dim() == 2 else ()
            sides = [torch.randn(size, *rank, generator=generator) for size in weight.shape]
            weight.data += 0.02 * (sides[0] @ sides[1].T if rank else sides[0])
    with pytest.raises(WrongModelError, match=rf"other weights: layers\.1\S*{part}\S* differs"):
        DistinctCache.load(path, model)


@pytest.mark.parametrize("plan", [{"kept": 1.0}, {"kept": 0.5}])
@pytest.mark.parametrize("attention", ["distinctkv", "sdpa"])
def test_it_is_for_the_weights_that_read_the_text(tmp_path, seed, text, plan, attention):
    model, paths = build(seed), (tmp_path / "first", tmp_path / "second")
    cache = distinct_cache(model, **plan)
    model.set_attn_implementation(attention)
    model(text[:, :30], past_key_values=cache)
    scale(model, 1.5)
    cache.save(paths[0])
    DistinctCache.load(paths[0], build(seed)).save(paths[1])
    for path in paths:
        DistinctCache.load(path, build(seed))
        with pytest.raises(WrongModelError, match="other weights"):
            DistinctCache.load(path, model)


@pytest.mark.parametrize("forget", [lambda cache: cache.reset(), lambda cache: cache.crop(-30)])
def test_a_cache_that_forgot_its_text_forgot_its_weights(tmp_path, seed, text, forget):
    model, path = build(seed), tmp_path / "cache.safetensors"
    cache = distinct_cache(model, 0.5)
    model(text[:, :30], past_key_values=cache)
    scale(model, 1.5)
    forget(cache)
    model(text, past_key_values=cache)
    cache.save(path)
    DistinctCache.load(path, model)
    with pytest.raises(WrongModelError, match="other weights"):
        DistinctCache.load(path, build(seed))


def test_weights_of_one_byte_are_known_too(tmp_path, seed):
    model, path = build(seed), tmp_path / "cache.safetensors"
    projection = model.model.layers[0].mlp.up_proj
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        small = projection.weight.data.float().to(kind)
        projection.weight = nn.Parameter(small, requires_grad=False)
        distinct_cache(model).save(path)
        DistinctCache.load(path, model)
        projection.weight.data = (small.float() * 2).to(kind)
        with pytest.raises(WrongModelError, match=r"up_proj\.weight differs"):
            DistinctCache.load(path, model)


def test_a_model_whose_weights_come_when_they_are_needed_can_load_it(tmp_path, seed, text):
    accelerate = pytest.importorskip("accelerate")
    model, path = build(seed), tmp_path / "cache.safetensors"
    cache = distinct_cache(model, 0.5)
    model(text, past_key_values=cache)
    cache.save(path)
    away = accelerate.cpu_offload(build(seed), execution_device=torch.device("cpu"))
    assert away.model.layers[0].self_attn.q_proj.weight.is_meta
    again = DistinctCache.load(path, away)
    more = text[:, :50]
    want = model(more, past_key_values=cache).logits
    assert torch.equal(away(more, past_key_values=again).logits, want)


@pytest.mark.parametrize("hook", [None, SimpleNamespace(execution_device="cpu")])
def test_where_weights_are_nowhere_the_device_is_that_of_the_hook_or_of_the_rotary(seed, hook):
    model = build(seed)
    attention = model.model.layers[1].self_attn.to("meta")
    attention.k_proj._hf_hook = hook
    assert Anatomy.of(model).device(1) == torch.device("cpu")


class Packed(nn.Module):
    """A layer whose weight is no parameter, as in quantised ones."""

    def __init__(self, plain):
        super().__init__()
        self.packed = [plain.weight]

    def forward(self, states):
        return states @ self.packed[0].mT


def test_a_model_whose_layers_have_no_parameters_can_load_it(tmp_path, seed, text):
    model, path = build(seed), tmp_path / "cache.safetensors"
    for block in model.model.layers:
        for name, part in list(block.self_attn.named_children()):
            setattr(block.self_attn, name, Packed(part))
    cache = distinct_cache(model, 1.0)
    model(text, past_key_values=cache)
    cache.save(path)
    again = DistinctCache.load(path, model)
    assert torch.equal(*(model(text[:, :3], past_key_values=one).logits for one in (cache, again)))


def test_a_file_that_does_not_know_its_weights_is_refused(tmp_path, tiny):
    path = tmp_path / "cache.safetensors"
    distinct_cache(tiny).save(path)
    arrays, state = snapshot.load(path, KIND)
    del state["model"]["weights"]
    snapshot.save(path, KIND, arrays, state)
    with pytest.raises(WrongModelError, match="an early version wrote it; make it anew"):
        DistinctCache.load(path, tiny)


def test_a_changed_file_is_refused(tmp_path, tiny, text):
    path = tmp_path / "cache.safetensors"
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    cache.save(path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="changed after it was written"):
        DistinctCache.load(path, tiny)
