"""A cache in a file goes on as if it had never been away."""

import pytest
import torch

from distinctkv import Concentration, SnapshotError, snapshot
from distinctkv.hf import CAREFUL, DistinctCache, WrongModelError, calibrate, distinct_cache
from distinctkv.hf.saving import KIND
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
