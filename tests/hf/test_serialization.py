"""A cache and a metric in a file continue as if they had never been away."""

import pytest
import torch
from torch import nn

from distinctkv import SnapshotError
from distinctkv.hf import FAST, DistinctCache, Metric, WrongModelError, calibrate, distinct_cache
from tests.hf.models import build, filled

SIZES = [
    {"threshold": 1.0, "trace": True},
    {"kept": 0.4, "merge": FAST},
    {"kept": 1.0},
    {"budget": 50},
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("dtype", "length"), [(torch.float32, 120), (torch.bfloat16, 120), (torch.float32, 0)]
)
def test_a_loaded_cache_continues(tmp_path, seed, text, size, dtype, length):
    model, tomorrow = build(seed).to(dtype), build(seed).to(dtype)
    cache = distinct_cache(model, **size)
    if length:
        model(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    again = DistinctCache.load(tmp_path / "cache.safetensors", tomorrow)
    assert (again.nbytes, again.config) == (cache.nbytes, cache.config)
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
    more = text[:, :40].repeat(2, 1)
    logits = [
        tiny(more, attention_mask=longer, past_key_values=one).logits for one in (cache, again)
    ]
    assert torch.equal(*logits)


def scaled(seed):
    model = build(seed)
    for weight in model.parameters():
        weight.data *= 1.01
    return model


def adapted(seed):
    model = build(seed)
    model.model.layers[2].self_attn.q_proj.lora_A = nn.Linear(32, 4, bias=False)
    return model


def tuned(seed):
    model = build(seed)
    weight = model.model.layers[1].mlp.gate_proj.weight
    weight.data += 1e-3 * torch.randn(48, 1) @ torch.randn(1, 32)
    return model


OTHERS = {
    "other weights": lambda seed: build(seed + 1),
    "'llama'": lambda seed: build(seed, "gemma"),
    "other weights.* differs": scaled,
    r"q_proj\.lora_A": adapted,
    r"layers\.1\.mlp\.gate_proj": tuned,
}


@pytest.mark.parametrize("word", OTHERS)
def test_another_model_can_load_neither_cache_nor_metric(tmp_path, seed, tiny, text, word):
    cache, metric = distinct_cache(tiny, 1.0), calibrate(tiny, [text])
    tiny(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    other = OTHERS[word](seed)
    with pytest.raises(WrongModelError, match=word):
        DistinctCache.load(tmp_path / "cache.safetensors", other)
    with pytest.raises(WrongModelError, match=word):
        distinct_cache(other, metric=metric)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_metric_serves_its_model_in_another_precision(seed, tiny, text, dtype):
    distinct_cache(build(seed).to(dtype), metric=calibrate(tiny, [text]))


@pytest.mark.parametrize("part", ["frequencies", "attention_scaling"])
def test_a_metric_of_another_rotation_raises(seed, tiny, text, part):
    metric, model = calibrate(tiny, [text]), build(seed)
    if part == "frequencies":
        model.model.rotary_emb.inv_freq.mul_(0.5)
    else:
        model.model.rotary_emb.attention_scaling = 1.5
    with pytest.raises(WrongModelError, match="other rotary frequencies"):
        distinct_cache(model, metric=metric)


def test_an_offloaded_model_can_load_it(tmp_path, seed, text):
    accelerate = pytest.importorskip("accelerate")
    model, path = build(seed), tmp_path / "cache.safetensors"
    cache = filled(model, text, 0.5)
    cache.save(path)
    away = accelerate.cpu_offload(build(seed), execution_device=torch.device("cpu"))
    assert away.model.layers[0].self_attn.q_proj.weight.is_meta
    again = DistinctCache.load(path, away)
    want = model(text[:, :50], past_key_values=cache).logits
    assert torch.equal(away(text[:, :50], past_key_values=again).logits, want)


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
    cache = filled(model, text, 1.0)
    cache.save(path)
    again = DistinctCache.load(path, model)
    assert torch.equal(*(model(text[:, :3], past_key_values=one).logits for one in (cache, again)))


def test_a_changed_file_and_another_kind_of_file_raise(tmp_path, tiny, text):
    path = tmp_path / "cache.safetensors"
    cache = filled(tiny, text, 1.0)
    cache.save(path)
    with pytest.raises(SnapshotError, match="qmv metric"):
        Metric.load(path)
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="changed"):
        DistinctCache.load(path, tiny)


def test_a_metric_survives_its_file(tmp_path, tiny, text):
    metric = calibrate(tiny, [text, text.flip(1)])
    metric.save(tmp_path / "metric.safetensors")
    again = Metric.load(tmp_path / "metric.safetensors")
    assert "1,536 bytes" in repr(again)
    logits = []
    for one in (metric, again):
        cache = filled(tiny, text, 1.0, metric=one)
        logits.append(tiny(text[:, :3], past_key_values=cache).logits)
    assert torch.equal(*logits)
