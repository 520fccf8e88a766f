import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import DynamicCache

from benchmarks.llm import online
from distinctkv.hf import distinct_cache
from tests.hf.models import build


@pytest.fixture(scope="module")
def model(seed):
    return build(seed)


def test_a_stream_read_in_chunks_has_the_nats_of_one_read_at_once(model, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 64, (1, 90), generator=generator)
    course = online.follow(model, ids, DynamicCache(), chunk=30)
    with torch.no_grad():
        logits = model(ids).logits[0]
    true = torch.nn.functional.cross_entropy(logits[29:-1], ids[0, 30:])
    assert course.nll == pytest.approx(float(true), abs=1e-4)
    assert course.slots == [30, 60, 90]


def test_a_stream_of_repeats_opens_few_slots(model, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 64, (1, 30), generator=generator).repeat(1, 6)
    cache = distinct_cache(model, threshold=1.0)
    course = online.follow(model, ids, cache, chunk=30)
    assert course.slots[-1] < 180
    assert 0 <= online.exponent(course.slots) < 1


def test_streams_of_one_setting_are_pooled():
    made = {"stream": "log", "chunk": 256, **online.Setting(1.0, 32, 0.0, 0.0)._asdict()}
    some = [
        {**made, "seed": seed, "tokens": 1000, "full": 1.0, "nll": nll, "slots": [40.0, 80.0]}
        for seed, nll in enumerate((1.0, 1.02))
    ]
    text = online.table(some)
    assert "| 2 | 1.000 | +1.0% | 8.0% | 40 80 80 | 1.00 | MET |" in text
