"""Training: the hybrid recalls what its backbone alone cannot, and a collapse is announced."""

import math
import warnings
from itertools import repeat

import numpy as np
import pytest
import torch

from distinctkv.data.mqar import SILENT, MQARTask
from distinctkv.nn import training
from distinctkv.nn.attention import Heads
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.hybrid import HybridLM
from distinctkv.nn.mamba import Mamba2
from distinctkv.nn.training import recall, sweep, train
from distinctkv.nn.watching import CollapseWarning, Ramp, Watch, distinct_layers
from distinctkv.nn.zoo import WriteGate
from distinctkv.policy import Concentration

TASK = MQARTask(n_items=12, repeats=3, n_keys=48, n_values=48)
CHANCE = math.log(TASK.n_values)


def batches(task, seed, n=20):
    rng = np.random.default_rng(seed)
    while True:
        batch = task.draw(rng, n)
        yield torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets)


def asked(task, seed, n=50):
    batch = task.draw(np.random.default_rng(seed), n)
    targets = np.where(batch.asked, batch.targets, SILENT)
    return torch.from_numpy(batch.tokens), torch.from_numpy(targets)


def ssm():
    return Mamba2(64, states=16, head=32, chunk=32)


def cache(**settings):
    return DistinctAttention(64, Heads(count=1, size=64), **settings)


def small():
    return HybridLM(TASK.vocabulary, 64, [cache()])


@pytest.mark.slow
def test_the_hybrid_recalls_what_the_backbone_alone_does_not(seed):
    torch.manual_seed(seed)
    hybrid = HybridLM(TASK.vocabulary, 64, [ssm(), cache()])
    alone = HybridLM(TASK.vocabulary, 64, [ssm(), ssm()])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        took = trained(hybrid, seed, steps=600)
    trained(alone, seed, steps=took)
    longer = MQARTask(n_items=12, repeats=7, n_keys=48, n_values=48)
    for task in (TASK, longer):
        assert recall(hybrid, *asked(task, seed + 1)) > 0.9
        assert recall(alone, *asked(task, seed + 1)) < 0.4
    recall(hybrid, *asked(longer, seed + 1))
    slots = hybrid.mixers[1].slots_per_token * longer.n_tokens
    assert slots < 4 * longer.n_items  # of 16 tokens an item


@pytest.mark.slow
def test_a_write_gate_stores_little_more_than_one_slot_an_item(seed):
    torch.manual_seed(seed)
    layer = cache(reading=Reading(window=1), gate=WriteGate(64))
    model = HybridLM(TASK.vocabulary, 64, [ssm(), layer])
    low = 0
    for step in train(model, batches(TASK, seed), steps=500, rate=5e-3, chance=CHANCE):
        low += step.loss < 0.1
        if low == 60:
            break
    question = asked(TASK, seed + 1)
    score, slots = recall(model, *question), layer.slots_per_token * TASK.n_tokens
    layer.gate = None
    assert recall(model, *question) < score + 0.02
    assert score > 0.9
    assert slots < 1.5 * TASK.n_items < layer.slots_per_token * TASK.n_tokens


def trained(model, seed, steps):
    """Steps until the loss is low, or all of them."""
    for step in train(model, batches(TASK, seed), steps=600, rate=5e-3, chance=CHANCE):
        if step.loss < 0.05 or step.step == steps - 1:
            return step.step + 1
    return steps


def test_each_step_tells_loss_and_slots(seed):
    model = small()
    steps = list(train(model, batches(TASK, seed), steps=4))
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert all(math.isfinite(step.loss) for step in steps)
    assert all(0 < step.slots["blocks.0.mixer"] <= 1 for step in steps)


def test_training_lowers_the_loss(seed):
    torch.manual_seed(seed)
    model = HybridLM(9, 16, [Mamba2(16, states=4, head=16)])
    tokens = torch.randint(9, (4, 12), generator=torch.Generator().manual_seed(seed))
    losses = [step.loss for step in train(model, repeat((tokens, tokens)), steps=40, every=39)]
    assert losses[-1] < losses[0] / 2


def test_the_ramp_is_run_through(seed):
    model, seen = small(), []
    for _ in train(model, batches(TASK, seed, 2), steps=8, ramp=Ramp(0.3)):
        seen.append(float(model.mixers[0].tau))
    assert seen == pytest.approx([0, 0, 0, 0.15, 0.3, 0.3, 0.3, 0.3])


@pytest.mark.parametrize("wrong", [(0.5, 0.5), (-0.1, 0.5), (0.2, 1.1)])
def test_a_ramp_rises_within_training(wrong):
    with pytest.raises(ValueError, match="begin < end"):
        Ramp(0.3, *wrong)


def watched(slots, losses):
    """What a watch says of a layer whose slots per token went like this."""
    model = small()
    watch = Watch(model, CHANCE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step, (now, loss) in enumerate(zip(slots, losses, strict=True)):
            model.mixers[0].slots_per_token = torch.tensor(now)
            watch.look(step, loss)
    return [str(warning.message) for warning in said]


def test_a_collapse_is_announced_once_by_name_with_advice():
    said = watched([0.8, 0.5, 0.19, 0.1], [CHANCE] * 4)
    assert len(said) == 1
    assert "blocks.0.mixer: slots per token fell from 0.800 to 0.190 by step 2" in said[0]
    assert "Halve tau (now 0.15" in said[0]


def test_few_slots_are_no_alarm_once_something_is_learned():
    assert not watched([0.8, 0.1], [CHANCE, CHANCE / 2])


def test_slots_that_fall_a_little_are_no_alarm():
    assert not watched([0.8, 0.3], [CHANCE, CHANCE])


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


def test_recall_counts_the_asked_and_leaves_the_mode_alone(seed):
    class Echo(torch.nn.Module):
        def forward(self, tokens):
            return torch.nn.functional.one_hot(tokens, 5).float()

    tokens = torch.tensor([[1, 2, 3, 4]])
    targets = torch.tensor([[1, 0, SILENT, SILENT]])
    model = Echo()
    assert recall(model, tokens, targets) == 0.5
    assert model.training


def test_a_sweep_gives_fewer_slots_for_larger_tau_and_puts_tau_back(seed):
    torch.manual_seed(seed)
    model = small()
    rows = sweep(model, [0.0, 0.5, 2.0], *asked(TASK, seed, 4))
    slots = [row[2] for row in rows]
    assert slots[0] > slots[1] > slots[2]
    assert slots[2] == pytest.approx(1 / TASK.n_tokens)
    assert float(model.mixers[0].tau) == 0.15


def test_silence_is_the_same_here_and_in_the_data():
    assert training.SILENT == SILENT
