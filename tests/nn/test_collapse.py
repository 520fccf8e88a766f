"""Tau and slots in training: a ramp rises, and a collapse is announced, and nothing else is."""

import math
import warnings

import pytest
import torch

from distinctkv.nn.attention import Heads
from distinctkv.nn.distinct import DistinctAttention
from distinctkv.nn.hybrid import HybridLM
from distinctkv.nn.train import CollapseWarning, Ramp, Watch, distinct_layers, set_tau, train
from distinctkv.policy import Concentration
from tests.nn.test_train import CHANCE, TASK, batches, cache, small, ssm


@pytest.mark.parametrize("tau", [math.nan, -1.0, 2.5])
def test_a_threshold_lies_between_0_and_2(tau):
    with pytest.raises(ValueError, match="tau must"):
        set_tau(small(), tau)


@pytest.mark.parametrize("wrong", [(0.5, 0.5), (-0.1, 0.5), (0.2, 1.1)])
def test_a_ramp_rises_within_training(wrong):
    with pytest.raises(ValueError, match="begin < end"):
        Ramp(0.3, *wrong)


@pytest.mark.parametrize("high", [math.nan, math.inf, -1.0])
def test_a_ramp_rises_to_a_number(high):
    with pytest.raises(ValueError, match="high >= 0"):
        Ramp(high)


def watched(slots, losses, taus=None, n_tokens=None):
    """What a watch says of a layer whose slots per token went like this."""
    model = small()
    watch = Watch(model, CHANCE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step, (now, loss) in enumerate(zip(slots, losses, strict=True)):
            if taus:
                set_tau(model, taus[step])
            model.mixers[0].slots_per_token = torch.tensor(now)
            watch.look(step, loss, n_tokens)
    return [str(warning.message) for warning in said]


def test_a_collapse_is_announced_once_by_name_with_advice():
    said = watched([0.8, 0.5, 0.19, 0.1], [CHANCE] * 4)
    assert len(said) == 1
    assert "blocks.0.mixer: slots per token fell from 0.800 to 0.190 by step 2" in said[0]
    assert "Halve tau (now 0.15" in said[0]


def test_slots_that_fall_because_tau_rises_are_no_alarm():
    assert not watched([0.8, 0.4, 0.15, 0.1], [CHANCE] * 4, taus=[0.0, 0.1, 0.3, 0.3])


def test_slots_that_fall_after_the_ramp_are_one():
    (said,) = watched([0.8, 0.4, 0.05], [CHANCE] * 3, taus=[0.0, 0.3, 0.3])
    assert "fell from 0.400 to 0.050" in said


def test_slots_are_compared_with_the_most_there_were():
    """At the first look the mean key is unknown, and keys that share it are alike."""
    (said,) = watched([0.1, 0.8, 0.15], [CHANCE] * 3)
    assert "fell from 0.800 to 0.150" in said


def test_few_slots_are_no_alarm_once_something_is_learned():
    assert not watched([0.8, 0.1], [CHANCE, CHANCE / 2])


def test_slots_that_fall_a_little_are_no_alarm():
    assert not watched([0.8, 0.3], [CHANCE, CHANCE])


RISING = [0.0, 0.1, 0.2, 0.3]


def test_a_collapse_while_tau_rises_is_announced():
    (said,) = watched([1.0, 0.5, 0.02, 0.02], [CHANCE] * 4, taus=RISING)
    assert "slots per token are as few as 0.020 by step 2" in said
    assert "Halve tau (now 0.2;" in said


def test_a_collapse_from_the_start_is_announced_at_the_second_look():
    (said,) = watched([0.02] * 4, [CHANCE] * 4)
    assert "as few as 0.020 by step 1" in said


@pytest.mark.parametrize(("n_tokens", "few", "enough"), [(16, 1, 2), (96, 2, 4), (4000, 2, 5)])
def test_too_few_are_those_of_a_sequence(n_tokens, few, enough):
    """Four letters repeated for 4,000 tokens have few slots for each token, and are told apart."""
    for slots, said in ((few, 1), (enough, 0)):
        found = watched([slots / n_tokens] * 4, [CHANCE] * 4, taus=RISING, n_tokens=n_tokens)
        assert len(found) == said


def test_sequences_of_no_tokens_are_no_alarm():
    assert not watched([0.5] * 3, [CHANCE] * 3, n_tokens=0)


def test_few_slots_before_the_mean_key_is_known_are_no_alarm():
    assert not watched([0.01, 0.6, 0.5], [CHANCE] * 3)


def test_few_slots_are_enough_once_they_tell_things_apart():
    assert not watched([1.0, 0.01, 0.01], [CHANCE, CHANCE / 2, CHANCE / 2], taus=RISING[:3])


def test_a_healthy_ramp_is_no_alarm(seed):
    """Distinct tokens stay apart whatever tau does, though nothing is learned all the while."""
    torch.manual_seed(seed)
    model = HybridLM(TASK.vocabulary, 64, [ssm(), cache()])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        steps = train(
            model, batches(TASK, seed, 8), steps=30, rate=1e-4, ramp=Ramp(0.4), chance=CHANCE
        )
        seen = list(steps)
    assert all(step.loss > 0.95 * CHANCE for step in seen)


def test_a_collapse_on_a_ramp_is_announced_in_training(seed):
    """Embeddings that hardly differ beside what they share, and a mean key that stays unknown."""
    torch.manual_seed(seed)
    heads = Heads(count=1, size=64, centre=False)
    model = HybridLM(TASK.vocabulary, 64, [DistinctAttention(64, heads)])
    with torch.no_grad():
        model.embed.weight.mul_(0.1).add_(1)
    with pytest.warns(CollapseWarning, match=r"are as few as 0\.0"):
        list(
            train(model, batches(TASK, seed, 8), steps=20, ramp=Ramp(0.4, 0.0, 0.9), chance=CHANCE)
        )


def test_a_collapse_in_training_is_announced(seed):
    """Dim embeddings and a large tau from the start: keys merge before they differ."""
    torch.manual_seed(seed)
    model = HybridLM(TASK.vocabulary, 64, [ssm(), cache(concentration=Concentration.fixed(0.5))])
    with torch.no_grad():
        model.embed.weight.mul_(0.06)
    with pytest.warns(CollapseWarning, match=r"blocks\.1\.mixer: slots per token fell"):
        list(train(model, batches(TASK, seed, 8), steps=30, rate=5e-3, chance=CHANCE))


def test_only_layers_with_slots_are_watched():
    model = HybridLM(TASK.vocabulary, 64, [ssm(), cache()])
    assert list(distinct_layers(model)) == ["blocks.1.mixer"]
