"""What the benchmark of the cache on a GPU watches is there to be watched."""

from pkgutil import resolve_name

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_every_stage_has_a_function():
    from benchmarks.gpu_llm import STAGES

    for path in STAGES.values():
        assert callable(resolve_name(f"distinctkv.hf.{path}"))


def test_one_batch_is_enough():
    from benchmarks.gpu_llm_decode import COMPARED, MORE, _order

    assert _order([128]) == [(128, name) for name in COMPARED + MORE]


def test_the_baseline_reads_a_static_cache_as_a_dynamic_one(seed):
    """Its kernel is compared with torch in `tests/kernels/test_ragged_attention.py`."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, StaticCache

    from benchmarks.gpu_llm_decode import SPLIT_KEYS, split_keys
    from tests.hf.models import build

    model, ids = build(seed), torch.arange(2, 62)[None].repeat(2, 1)
    AttentionInterface.register(SPLIT_KEYS, split_keys)
    AttentionMaskInterface.register(SPLIT_KEYS, lambda *_, **__: None)
    plain, static = DynamicCache(), StaticCache(model.config, 71)
    with torch.no_grad():
        model(ids, past_key_values=plain)
        for index, layer in enumerate(plain.layers):
            static.update(layer.keys, layer.values, index,
                          {"cache_position": torch.arange(60)})  # fmt: skip
        for n in range(3):
            token, position = ids[:, n : n + 1], torch.tensor([[60 + n]])
            model.set_attn_implementation("sdpa")
            want = model(token, past_key_values=plain).logits
            model.set_attn_implementation(SPLIT_KEYS)
            got = model(token, past_key_values=static, position_ids=position,
                        cache_position=position[0]).logits  # fmt: skip
            torch.testing.assert_close(got, want, atol=1e-4, rtol=0)
