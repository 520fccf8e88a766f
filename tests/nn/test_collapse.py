"""Tau and slots in training: a ramp rises, and a collapse is announced, and nothing else is."""

import re
import warnings

import pytest
import torch

from distinctkv.nn.attention import Heads
from distinctkv.nn.distinct import DistinctAttention
from distinctkv.nn.hybrid import HybridLM
from distinctkv.nn.train import CollapseMonitor, CollapseWarning, Ramp, set_tau, train
from distinctkv.policy import Concentration
from tests.nn.test_train import CHANCE, TASK, batches, cache, small, ssm


def watched(slots, losses, taus=None, n_tokens=None):
    """What a watch says of a layer whose slots per token went like this."""
    model = small()
    monitor = CollapseMonitor(model, CHANCE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step, (now, loss) in enumerate(zip(slots, losses, strict=True)):
            if taus:
                set_tau(model, taus[step])
            model.mixers[0].slots_per_token = torch.tensor(now)
            monitor.update(step, loss, n_tokens)
    return [str(warning.message) for warning in said]


RISING = [0.0, 0.1, 0.2, 0.3]
RIGHT = CHANCE / 2
SEEN = {  # slots per token and losses at each look, tau, and what is said
    "fell": (
        [0.8, 0.5, 0.19, 0.1],
        [CHANCE] * 4,
        None,
        r"0\.mixer.* fell from 0\.800 to 0\.190 by step 2",
    ),
    "tau rises": ([0.8, 0.4, 0.15, 0.1], [CHANCE] * 4, [0.0, 0.1, 0.3, 0.3], None),
    "after the ramp": ([0.8, 0.4, 0.05], [CHANCE] * 3, [0.0, 0.3, 0.3], "fell from 0.400 to 0.050"),
    "the most there were": ([0.1, 0.8, 0.15], [CHANCE] * 3, None, "fell from 0.800 to 0.150"),
    "something is learned": ([0.8, 0.1], [CHANCE, RIGHT], None, None),
    "fell a little": ([0.8, 0.3], [CHANCE] * 2, None, None),
    "few while tau rises": (
        [1.0, 0.5, 0.02, 0.02],
        [CHANCE] * 4,
        RISING,
        "as few as 0.020 by step 2",
    ),
    "few from the start": ([0.02] * 4, [CHANCE] * 4, None, "as few as 0.020 by step 1"),
    "the mean key is unknown": ([0.01, 0.6, 0.5], [CHANCE] * 3, None, None),
    "few are enough": ([1.0, 0.01, 0.01], [CHANCE, RIGHT, RIGHT], RISING[:3], None),
}


@pytest.mark.parametrize("case", SEEN)
def test_slots_that_fall_too_soon_are_announced_once(case):
    slots, losses, taus, wanted = SEEN[case]
    said = watched(slots, losses, taus)
    assert len(said) == (wanted is not None)
    for text in said:
        assert re.search(wanted, text)
        assert "Halve tau (now" in text


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


@pytest.mark.parametrize(("n_tokens", "few", "enough"), [(16, 1, 2), (96, 2, 4), (4000, 2, 5)])
def test_too_few_are_those_of_a_sequence(n_tokens, few, enough):
    """Four letters repeated for 4,000 tokens have few slots for each token, and are told apart."""
    for slots, said in ((few, 1), (enough, 0)):
        found = watched([slots / n_tokens] * 4, [CHANCE] * 4, taus=RISING, n_tokens=n_tokens)
        assert len(found) == said


@pytest.mark.parametrize("wrong", [(0.5, 0.5), (-0.1, 0.5), (0.2, 1.1)])
def test_a_ramp_rises_within_training(wrong):
    with pytest.raises(ValueError, match="begin < end"):
        Ramp(0.3, *wrong)
