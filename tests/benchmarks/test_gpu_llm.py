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
