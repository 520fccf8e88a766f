"""The distance is the expected error in attention; calibrated metrics."""

import pytest
import torch

from distinctkv.hf import MergePolicy, calibrate, distinct_cache
from distinctkv.hf.metric import Moments
from tests.hf.models import build, filled


def moments_of(queries, values, scaling=1.0):
    # Not public: single heads with chosen queries do not occur in a model.
    mask = torch.ones(1, queries.shape[2], dtype=torch.bool)
    return Moments.of(queries, values, mask, scaling)


def test_distance_is_the_error_in_logit_and_value(seed):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 6, 500, 4, generator=generator) @ torch.randn(
        4, 4, generator=generator
    )
    values = torch.randn(1, 2, 500, 5, generator=generator) * 3
    parts = [slice(200), slice(200, 500)]
    first, second = (moments_of(queries[:, :, p], values[:, :, p], 0.5) for p in parts)
    scale = first.plus(second).scale(0)
    gap = torch.randn(2, 1, 9, generator=generator)
    far = scale.features(gap[..., :4], gap[..., 4:]).square().sum(-1)[:, 0]
    for head in range(2):
        logits = 0.5 * queries[0, 3 * head : 3 * head + 3] @ gap[head, 0, :4]
        relative = gap[head, 0, 4:].square().sum() / values[0, head].square().sum(-1).mean()
        want = logits.square().mean() + relative
        torch.testing.assert_close(far[head], want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 8])
@pytest.mark.parametrize(("D", "L"), [(64, 1500), (256, 1500), (64, 2)])
def test_queries_in_few_directions_have_a_factor(seed, rank, D, L):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(1, 2, L, rank, generator=generator)
    queries = queries @ torch.randn(rank, D, generator=generator)
    factor = moments_of(queries, torch.ones(1, 2, L, 4)).scale(0).factor.double()
    want = (queries.double().mT @ queries.double())[0] / L
    mean = want.diagonal(dim1=-2, dim2=-1).mean()
    torch.testing.assert_close(factor @ factor.mT / mean, want / mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("most", [1, 2**13])
def test_moments_do_not_depend_on_how_many_are_reduced_at_a_time(tiny, text, monkeypatch, most):
    caches = []
    for bound in (2**23, most):
        monkeypatch.setattr("distinctkv.hf.metric.MAX_BYTES", bound)
        caches.append(distinct_cache(tiny, 1.0))
        mask = torch.ones(2, 120, dtype=torch.long)
        mask[1, :30] = 0
        tiny(text.repeat(2, 1), attention_mask=mask, past_key_values=caches[-1])
    for a, b in zip(*(cache.layers for cache in caches), strict=True):
        for name in ("queries", "values", "count"):
            pair = getattr(a.moments, name), getattr(b.moments, name)
            torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-5)


def test_a_metric_calibrated_on_the_context_gives_the_same_slots_and_is_held_once(tiny, text):
    metric = calibrate(tiny, [text])
    own, given = filled(tiny, text, 1.0), filled(tiny, text, 1.0, metric=metric)
    both = filled(tiny, torch.cat((text.flip(1), text)), 1.0, metric=metric)
    for a, b in zip(own.layers, given.layers, strict=True):
        assert torch.equal(a.slots.lengths, b.slots.lengths)
        assert torch.equal(a.slots.positions, b.slots.positions)
    assert given.summary().metric == 0
    assert (both.summary(1).slots == given.summary().slots).all()
    # Not public: what a batch allocates cannot be seen from outside.
    scale = metric.scales([0, 1, 2], 128, torch.device("cpu"))
    assert scale.factor.untyped_storage().data_ptr() == metric.factors.untyped_storage().data_ptr()


def test_the_metric_of_a_model_in_float16_with_small_frequencies(seed, text):
    slow = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7}}
    metric = calibrate(build(seed, head_dim=128, **slow), [text, text])
    distinct_cache(build(seed, head_dim=128, **slow).half(), 1.0, metric=metric)


def test_texts_go_through_the_tokenizer_and_make_no_logits(tiny, text):
    made = []
    hook = tiny.lm_head.register_forward_hook(lambda module, given, out: made.append(out.shape))
    found = calibrate(tiny, ["a"], lambda words, return_tensors: {"input_ids": text})
    hook.remove()
    assert not made
    assert torch.equal(found.factors, calibrate(tiny, [text]).factors)


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["a text"], "tokenizer="),
        ("a text", "one str"),
        (torch.arange(2, 60), "one Tensor"),
        ([], "0 tokens"),
        ([torch.tensor([3]), torch.arange(2, 6)], "5 tokens"),
    ],
)
def test_texts_that_are_no_texts_raise(tiny, texts, word):
    with pytest.raises((TypeError, ValueError), match=word):
        calibrate(tiny, texts)


@pytest.mark.parametrize("policy", [MergePolicy(), MergePolicy(attention_mean=False)])
def test_importance_does_not_depend_on_chunks_or_padding(tiny, text, policy):
    whole, parts, padded = (distinct_cache(tiny, 1.0, recent=140, merge=policy) for _ in range(3))
    tiny(text, past_key_values=whole)
    for chunk in text.split(35, dim=1):
        tiny(chunk, past_key_values=parts)
    mask = torch.cat((torch.zeros(1, 20), torch.ones(1, 120)), 1).long()
    both = torch.cat((torch.zeros(1, 20, dtype=torch.long), text), 1)
    tiny(both, attention_mask=mask, past_key_values=padded)
    for a, b, c in zip(whole.layers, parts.layers, padded.layers, strict=True):
        torch.testing.assert_close(a.received, b.received, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(a.received, c.received[..., 20:], atol=1e-3, rtol=1e-3)
