"""The distance is what merging costs in attention."""

import pytest
import torch

from distinctkv import SnapshotError
from distinctkv.hf import Metric, WrongModelError, calibrate, distinct_cache
from distinctkv.hf.metric import Moments
from tests.hf.models import build


@pytest.fixture
def moments(seed):
    """Two heads of three queries each, 500 tokens of which the last 100 are padding."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 6, 500, 4, generator=generator) @ torch.randn(
        4, 4, generator=generator
    )
    values = torch.randn(1, 2, 500, 5, generator=generator) * 3
    real = torch.arange(500)[None] < 400
    moments = Moments.zero(1, 2, 4, torch.device("cpu"))
    moments.add(queries[:, :, :200], values[:, :, :200], real[:, :200], 0.5)
    moments.add(queries[:, :, 200:], values[:, :, 200:], real[:, 200:], 0.5)
    return moments, queries[0, :, :400], values[0, :, :400]


def test_a_metric_prints_as_one_line(tiny, text):
    assert repr(calibrate(tiny, [text])) == "Metric(3 layers, 2 key-value heads of 8, 1,536 bytes)"


def test_distance_is_the_error_in_logit_and_value(moments, seed):
    moments, queries, values = moments
    a, b = torch.randn(2, 2, 1, 9, generator=torch.Generator().manual_seed(seed + 1))
    scale = moments.scale(0)
    far = (scale.features(a[..., :4], a[..., 4:]) - scale.features(b[..., :4], b[..., 4:]))[:, 0]
    gap = (a - b)[:, 0]
    for head in range(2):
        logits = 0.5 * queries[3 * head : 3 * head + 3] @ gap[head, :4]
        relative = gap[head, 4:].square().sum() / values[head].square().sum(-1).mean()
        want = logits.square().mean() + relative
        torch.testing.assert_close(far[head].square().sum(), want, rtol=1e-4, atol=1e-6)


def test_a_few_queries_are_enough_not_to_fail():
    moments = Moments.zero(1, 1, 64, torch.device("cpu"))
    moments.add(torch.ones(1, 1, 2, 64), torch.zeros(1, 1, 2, 64), torch.ones(1, 2).bool(), 1.0)
    scale = moments.scale(0)
    assert scale.features(torch.ones(1, 3, 64), torch.ones(1, 3, 64)).isfinite().all()


@pytest.mark.parametrize("rank", [1, 8])
@pytest.mark.parametrize("D", [64, 256])
def test_many_queries_in_few_directions_have_a_factor(seed, rank, D):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 2, 1500, rank, generator=generator)
    queries = queries @ torch.randn(rank, D, generator=generator)
    moments = Moments.zero(1, 2, D, torch.device("cpu"))
    moments.add(queries, torch.ones(1, 2, 1500, 4), torch.ones(1, 1500).bool(), 1.0)
    factor = moments.scale(0).factor.double()
    want = (queries.double().mT @ queries.double())[0] / 1500
    mean = want.diagonal(dim1=-2, dim2=-1).mean()
    torch.testing.assert_close(factor @ factor.mT / mean, want / mean, rtol=1e-4, atol=1e-4)


@pytest.fixture
def metric(tiny, text):
    return calibrate(tiny, [text, text.flip(1)])


def test_a_metric_calibrated_on_the_context_gives_the_same_slots(tiny, text):
    own, given = (
        distinct_cache(tiny, 1.0),
        distinct_cache(tiny, 1.0, metric=calibrate(tiny, [text])),
    )
    tiny(text, past_key_values=own)
    tiny(text, past_key_values=given)
    for a, b in zip(own.layers, given.layers, strict=True):
        assert torch.equal(a.slots.lengths, b.slots.lengths)
        assert torch.equal(a.slots.positions, b.slots.positions)
    assert given.summary().metric == 0


def test_a_metric_is_held_once_for_all_sequences(tiny, text, metric):
    # Not public: what a batch allocates cannot be seen from outside.
    scale = metric.scales([0, 1, 2], 128, torch.device("cpu"))
    assert scale.factor.untyped_storage().data_ptr() == metric.factors.untyped_storage().data_ptr()
    batch = torch.cat((text, text.flip(1)))
    cache, alone = (distinct_cache(tiny, 1.0, metric=metric) for _ in range(2))
    tiny(batch, past_key_values=cache)
    tiny(batch[1:], past_key_values=alone)
    for a, b in zip(cache.layers, alone.layers, strict=True):
        assert torch.equal(a.slots.lengths[1:], b.slots.lengths)


def test_a_metric_survives_its_file(tmp_path, tiny, text, metric):
    metric.save(tmp_path / "metric.safetensors")
    again = Metric.load(tmp_path / "metric.safetensors")
    assert torch.equal(again.factors, metric.factors)
    logits = []
    for one in (metric, again):
        cache = distinct_cache(tiny, 1.0, metric=one)
        tiny(text, past_key_values=cache)
        logits.append(tiny(text[:, :3], past_key_values=cache).logits)
    assert torch.equal(*logits)


def test_a_metric_serves_its_model_in_another_precision(seed, metric):
    distinct_cache(build(seed).to(torch.bfloat16), metric=metric)


@pytest.mark.parametrize(
    ("kind", "said"), [("qwen3", "model_type = 'llama'"), ("llama", "other weights")]
)
def test_a_metric_of_another_model_is_refused(seed, kind, said, metric):
    with pytest.raises(WrongModelError, match=f"this metric is for .*{said}.*; calibrate one"):
        distinct_cache(build(seed + 1, kind), metric=metric)


def test_a_metric_of_a_sibling_is_refused(seed, metric):
    sibling = build(seed)
    for weight in sibling.parameters():
        weight.data *= 1.01
    with pytest.raises(WrongModelError, match=r"with other weights: .* differs"):
        distinct_cache(sibling, metric=metric)


def test_a_metric_of_other_rotary_frequencies_is_refused(seed, metric):
    model = build(seed)
    model.model.rotary_emb.inv_freq.mul_(0.5)
    with pytest.raises(WrongModelError, match="other rotary frequencies"):
        distinct_cache(model, metric=metric)


def test_a_metric_of_a_model_that_stretches_what_it_turns_is_refused(seed, metric):
    model = build(seed)
    model.model.rotary_emb.attention_scaling = 1.5
    with pytest.raises(
        WrongModelError, match="other rotary frequencies, or another attention_factor"
    ):
        distinct_cache(model, metric=metric)


def test_a_metric_serves_its_model_in_float16_where_frequencies_are_small(seed, text):
    slow = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7}}
    metric = calibrate(build(seed, head_dim=128, **slow), [text, text])
    distinct_cache(build(seed, head_dim=128, **slow).half(), 1.0, metric=metric)


def test_a_metric_of_a_model_that_turns_more_of_a_key_is_refused(seed, text):
    metric = calibrate(build(seed, "phi3"), [text])
    with pytest.raises(WrongModelError, match="other rotary frequencies"):
        distinct_cache(build(seed, "phi3", partial_rotary_factor=1.0), 1.0, metric=metric)


def test_another_file_is_no_metric(tmp_path, tiny, text):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    cache.save(tmp_path / "cache.safetensors")
    with pytest.raises(SnapshotError, match="holds a 'language model cache', not a 'qmv metric'"):
        Metric.load(tmp_path / "cache.safetensors")


def test_a_metric_is_loaded_before_it_is_given(tiny):
    with pytest.raises(TypeError, match=r"got 'metric.safetensors'; of a file say Metric.load"):
        distinct_cache(tiny, metric="metric.safetensors")


def test_texts_need_a_tokenizer_and_there_must_be_some(tiny):
    with pytest.raises(TypeError, match="give tokenizer="):
        calibrate(tiny, ["a text"])
    with pytest.raises(ValueError, match="no texts"):
        calibrate(tiny, [])
    with pytest.raises(TypeError, match=r"got one str; say \[text\]"):
        calibrate(tiny, "a text")
    with pytest.raises(TypeError, match=r"got one Tensor; say \[text\]"):
        calibrate(tiny, torch.arange(2, 60))
    with pytest.raises(TypeError, match=r"texts are a function; say calibrate\(model, texts, tok"):
        calibrate(tiny, lambda *_, **__: [], ["a text"])
    with pytest.raises(ValueError, match="texts have 5 tokens, keys have 8 numbers"):
        calibrate(tiny, [torch.tensor([3]), torch.arange(2, 6)])
    with pytest.raises(ValueError, match="has no tokens; leave it out"):
        calibrate(tiny, [torch.zeros(0, dtype=torch.int64)])


def test_calibrating_makes_no_logits(tiny, text):
    made = []
    hook = tiny.lm_head.register_forward_hook(lambda module, given, out: made.append(out.shape))
    calibrate(tiny, [text])
    hook.remove()
    assert not made


@pytest.mark.parametrize("wrong", [None, [3, 4], {"input_ids": torch.ones(1, 9)}])
def test_what_is_neither_a_text_nor_tokens_is_named(tiny, wrong):
    with pytest.raises(TypeError, match=f"got a {type(wrong).__name__}"):
        calibrate(tiny, [wrong])


def test_texts_go_through_the_tokenizer(tiny, text, metric):
    def tokenizer(words, return_tensors):
        assert return_tensors == "pt"
        return {"input_ids": {"a": text, "b": text.flip(1)}[words]}

    assert torch.equal(calibrate(tiny, ["a", "b"], tokenizer).factors, metric.factors)
