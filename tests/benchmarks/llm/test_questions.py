from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch.nn.functional import cross_entropy

from benchmarks.llm import kv_states as llm_held
from benchmarks.llm.baselines import RIVALS, SINKS, at_random, kept_tokens, mass
from benchmarks.llm.kv_states import hold_by, keep, read
from benchmarks.llm.questions import ask
from distinctkv.hf import FAST, distinct_cache
from tests.hf.models import build

QUESTIONS = (((7, 8, 9), (10,)), ((11,), (12, 13, 14)))
LENGTH = 120


@pytest.fixture(scope="module")
def model(seed):
    return build(seed)


@pytest.fixture(scope="module")
def ids(seed):
    """Twenty lines, of which four are distinct."""
    generator = torch.Generator().manual_seed(seed)
    lines = torch.randint(2, 64, (4, 6), generator=generator)
    return lines[torch.randint(0, 4, (20,), generator=generator)].reshape(1, -1)


@pytest.fixture(scope="module")
def context(model, ids):
    return read(model, ids)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


def nll(logits, cue, answer):
    part = logits[0, len(cue) - 1 : len(cue) - 1 + len(answer)]
    return float(cross_entropy(part, torch.tensor(answer)))


def everything(context):
    return keep(context, [torch.ones(one.keys.shape[1:3]).bool() for one in context.layers])


def test_with_everything_held_answers_are_those_of_the_model(model, ids, context):
    (answers,) = ask(model, [everything(context)], LENGTH, QUESTIONS)
    for answer, (cue, true) in zip(answers, QUESTIONS, strict=True):
        whole = torch.cat((ids, torch.tensor([[*cue, *true]])), 1)
        logits = model(whole).logits[:, LENGTH:]
        assert answer.nll == pytest.approx(nll(logits, cue, true), abs=1e-4)
        said = logits[0, len(cue) - 1 : len(cue) - 1 + len(true)].argmax(-1).tolist()
        assert answer.right == (said == list(true))


@pytest.mark.parametrize("sizes", [{"threshold": 1.0}, {"kept": 0.4, "merge": FAST}])
def test_answers_from_a_cache_of_ours_are_those_it_gives_in_the_model(model, ids, context, sizes):
    held = hold_by(distinct_cache(model, **sizes), context)
    (answers,) = ask(model, [held], LENGTH, QUESTIONS)
    for answer, (cue, true) in zip(answers, QUESTIONS, strict=True):
        cache = distinct_cache(model, **sizes)
        model(ids, past_key_values=cache)
        assert cache.summary().kept < 0.9
        logits = model(torch.tensor([[*cue, *true]]), past_key_values=cache).logits
        assert answer.nll == pytest.approx(nll(logits, cue, true), abs=1e-4)


def test_what_a_cache_of_ours_holds_is_what_it_says(model, context):
    cache = distinct_cache(model, kept=0.4)
    held = hold_by(cache, context)
    n_heads = sum(one.keys.shape[1] for one in context.layers)
    slots = sum(one.n_slots for one in held)
    assert slots / n_heads / LENGTH == pytest.approx(cache.summary().kept)


def test_several_ways_at_once_answer_as_one_by_one(model, context):
    ours = hold_by(distinct_cache(model, kept=0.4), context)
    few = kept_tokens(context, RIVALS["streaming"], 0.3)
    together = ask(model, [ours, few], LENGTH, QUESTIONS)
    alone = [ask(model, [one], LENGTH, QUESTIONS)[0] for one in (ours, few)]
    for some, others in zip(together, alone, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.nll == pytest.approx(other.nll, abs=1e-5)


def test_reading_and_asking_leave_the_attention_as_it_was(model, context):
    before = model.config._attn_implementation
    ask(model, [everything(context)], LENGTH, QUESTIONS)
    assert model.config._attn_implementation == before


@pytest.mark.parametrize("name", [*RIVALS, "random"])
def test_a_rival_keeps_as_many_tokens_as_it_may(name, context, seed):
    score = at_random(seed) if name == "random" else RIVALS[name]
    for held in kept_tokens(context, score, 0.5):
        assert ((held.bias == 0).sum(1) == LENGTH // 2).all()


@pytest.mark.parametrize("name", ["streaming", "h2o", "snapkv", "rkv", "random"])
def test_sinks_are_kept(name, context, seed):
    score = at_random(seed) if name == "random" else RIVALS[name]
    for held in kept_tokens(context, score, 0.5):
        assert (held.bias[:, :SINKS] == 0).all()


def test_all_the_attention_there_is_adds_up(context):
    for layer in context.layers:
        assert mass(layer).sum(1) == pytest.approx(LENGTH, rel=1e-4)


def test_attention_is_the_same_in_pieces_and_at_once(context, monkeypatch):
    whole = context.layers[1].received
    monkeypatch.setattr(llm_held, "ROWS", 32)
    pieces = replace(context.layers[1]).received
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)


def test_of_two_tokens_that_are_alike_the_later_is_less_redundant(context):
    layer = context.layers[0]
    keys = layer.keys.clone()
    keys[:, :, 20] = keys[:, :, 70]
    score = RIVALS["rkv"](replace(layer, keys=keys), 60)
    assert (score[:, 20] < score[:, 70]).all()
