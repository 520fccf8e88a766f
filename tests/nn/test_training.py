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
from distinctkv.nn.training import Learner, recall, sweep, train
from distinctkv.nn.watching import CollapseWarning, Ramp, Watch, distinct_layers, set_tau
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


def cache_of(width):
    return DistinctAttention(width, Heads(count=1, size=width))


def small():
    return HybridLM(TASK.vocabulary, 64, [cache()])


def test_the_hybrid_recalls_what_the_backbone_alone_does_not(seed):
    """Both run one schedule to its end. With some times the steps the backbone learns it too."""
    models = []
    for second in (cache, lambda: Mamba2(64, states=8, head=32, chunk=32)):
        torch.manual_seed(seed)
        first = Mamba2(64, states=8, head=32, chunk=32)
        models.append(HybridLM(TASK.vocabulary, 64, [first, second()]))
        with warnings.catch_warnings():
            warnings.simplefilter("error", CollapseWarning)
            list(train(models[-1], batches(TASK, seed), steps=400, rate=5e-3, chance=CHANCE))
    hybrid, alone = models
    for task in (TASK, MQARTask(n_items=12, repeats=7, n_keys=48, n_values=48)):
        question = asked(task, seed + 1)
        assert recall(hybrid, *question) > 0.9
        assert recall(alone, *question) < 0.4
    recall(hybrid, *question)
    assert hybrid.mixers[1].slots_per_token * task.n_tokens < 4 * task.n_items  # of 16 tokens


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


def test_a_batch_that_asks_nothing_teaches_nothing(seed):
    torch.manual_seed(seed)
    model = HybridLM(9, 16, [Mamba2(16, states=4, head=16)])
    tokens, silent = torch.randint(9, (4, 12)), torch.full((4, 12), SILENT)
    (step,) = train(model, [(tokens, silent)], steps=1)
    assert step.loss == 0
    assert all(weight.isfinite().all() for weight in model.parameters())


def answered(part, task, seed):
    """The loss of a first step that answers this part of the places, and how many those were."""
    torch.manual_seed(seed)
    model, places = small(), []
    model.register_forward_hook(lambda _model, _given, logits: places.append(logits.shape[1]))
    return float(Learner(model, part)(*next(batches(task, seed)))), places[0]


def test_a_step_that_answers_all_that_is_asked_is_the_same_without_the_other_places(seed):
    tokens = 2 * TASK.n_items * (TASK.repeats + 1)
    (whole, everywhere), (half, places) = (answered(part, TASK, seed) for part in (None, 0.5))
    assert (everywhere, places) == (tokens, tokens // 2)
    assert half == pytest.approx(whole, rel=1e-5)


def test_a_step_may_answer_fewer_of_those_asked(seed):
    (whole, _), (part, places) = (answered(part, TASK, seed) for part in (None, 0.1))
    assert places == math.ceil(0.1 * 2 * TASK.n_items * (TASK.repeats + 1))
    assert part == pytest.approx(whole, rel=0.2)  # a mean over some of the same answers
    assert part != whole


def test_only_matrices_and_embeddings_are_decayed():
    model = HybridLM(9, 16, ["diagonal", cache_of(16), Mamba2(16, states=4, head=16)])
    names = {id(weight): name for name, weight in model.named_parameters()}
    decayed, rest = ({names[id(p)] for p in group["params"]} for group in training._groups(model))
    ends = (".enter.weight", ".leave.weight", "embed.weight")
    assert all(name.endswith(ends) for name in decayed)
    assert not any(name.endswith(ends) for name in rest)
    assert decayed | rest == set(names.values())


@pytest.mark.parametrize("tau", [math.nan, -1.0, 2.5])
def test_a_threshold_lies_between_0_and_2(tau):
    for use in (Ramp, lambda tau: set_tau(small(), tau)):
        with pytest.raises(ValueError, match="tau must"):
            use(tau)


@pytest.mark.parametrize("wrong", [(0.5, 0.5), (-0.1, 0.5), (0.2, 1.1)])
def test_a_ramp_rises_within_training(wrong):
    with pytest.raises(ValueError, match="begin < end"):
        Ramp(0.3, *wrong)


def watched(slots, losses, taus=None):
    """What a watch says of a layer whose slots per token went like this."""
    model = small()
    watch = Watch(model, CHANCE)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step, (now, loss) in enumerate(zip(slots, losses, strict=True)):
            if taus:
                set_tau(model, taus[step])
            model.mixers[0].slots_per_token = torch.tensor(now)
            watch.look(step, loss)
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
