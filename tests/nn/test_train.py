"""Training: the hybrid recalls what its backbone alone cannot, a step is what it says, and tau
that rises too fast is announced."""

import math
import re
import warnings
from copy import deepcopy
from itertools import islice, repeat

import numpy as np
import pytest
import torch

from distinctkv.nn import train as training
from distinctkv.nn.attention import Heads
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import WriteGate
from distinctkv.nn.hybrid import HybridLM
from distinctkv.nn.ssm import Mamba2
from distinctkv.nn.train import (
    CollapseMonitor,
    CollapseWarning,
    Learner,
    Ramp,
    recall,
    set_tau,
    sweep,
    train,
)
from distinctkv.policy import Concentration
from reproduction.data import SILENT, MQARTask

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


def test_training_lowers_the_loss(seed):
    model = HybridLM(9, 16, [Mamba2(16, states=4, head=16)])
    tokens = torch.randint(9, (4, 12))
    losses = [step.loss for step in train(model, repeat((tokens, tokens)), steps=40, every=39)]
    assert losses[-1] < losses[0] / 2


def test_the_ramp_is_run_through(seed):
    model, seen = small(), []
    for _ in train(model, batches(TASK, seed, 2), steps=8, ramp=Ramp(0.3)):
        seen.append(float(model.mixers[0].tau))
    assert seen == pytest.approx([0, 0, 0, 0.15, 0.3, 0.3, 0.3, 0.3])


def test_a_batch_that_asks_nothing_teaches_nothing():
    model = HybridLM(9, 16, [Mamba2(16, states=4, head=16)])
    tokens, silent = torch.randint(9, (4, 12)), torch.full((4, 12), SILENT)
    with pytest.warns(UserWarning, match="nothing was asked: all targets seen were -100"):
        (step,) = train(model, [(tokens, silent)], steps=1)
    assert step.loss == 0
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_a_model_without_an_error_was_asked():
    model = HybridLM(1, 16, [Mamba2(16, states=4, head=16)])
    tokens = torch.zeros(2, 5, dtype=torch.long)
    (step,) = train(model, [(tokens, tokens)], steps=1)  # one word: a warning would be an error
    assert step.loss == 0


@pytest.mark.parametrize(("part", "near"), [(0.5, 1e-5), (0.1, 0.2)])
def test_a_step_that_answers_fewer_places_has_nearly_the_loss_of_all(part, near, seed):
    """Half of all places holds all that is asked; a tenth is a mean over some of these."""
    found, tokens = [], 2 * TASK.n_items * (TASK.repeats + 1)
    for share in (None, part):
        torch.manual_seed(seed)
        model, places = small(), []
        model.register_forward_hook(lambda _model, _given, out, to=places: to.append(out.shape[1]))
        found.append(float(Learner(model, share)(*next(batches(TASK, seed)))))
        assert places[0] == math.ceil((share or 1) * tokens)
    assert found[1] == pytest.approx(found[0], rel=near)
    assert found[1] != found[0] or part == 0.5


def test_batches_that_end_early_end_the_training_and_that_is_told(seed):
    with pytest.warns(UserWarning, match="ended after 3 of 100 steps.*give steps=3"):
        steps = list(train(small(), islice(batches(TASK, seed, 2), 3), steps=100, every=10))
    assert [step.step for step in steps] == [0, 2]


def test_the_last_step_is_shown_once_and_tells_loss_and_slots(seed):
    for every, wanted in ((3, [0, 3, 4]), (2, [0, 2, 4]), (1, [0, 1, 2, 3, 4])):
        steps = list(train(small(), batches(TASK, seed, 2), steps=5, every=every))
        assert [step.step for step in steps] == wanted
        assert all(math.isfinite(step.loss) for step in steps)
        assert all(0 < step.slots["blocks.0.mixer"] <= 1 for step in steps)


def test_without_a_gpu_a_step_is_run_as_it_is_and_that_is_told_once(seed):
    one, drawn = small(), list(islice(batches(TASK, seed, 2), 3))
    other, plain = deepcopy(one), list(train(one, drawn, steps=3))
    with pytest.warns(UserWarning, match="a graph needs a model on a GPU.*cpu") as said:
        steps = list(train(other, drawn, steps=3, captured=True))
    assert len(said) == 1
    assert steps == plain


def test_a_step_goes_no_further_than_gradients_of_length_one(seed):
    model, (tokens, targets) = small(), next(batches(TASK, seed))
    with torch.no_grad():
        model.norm.mul_(30)  # logits that are sure, and wrong
    twin = deepcopy(model)
    Learner(model)(tokens, targets)
    torch.nn.functional.cross_entropy(twin(tokens).flatten(0, 1), targets.flatten()).backward()
    slopes = [weight.grad for weight in twin.parameters()]
    length = torch.cat([slope.flatten() for slope in slopes]).norm()
    assert length > 2
    for weight, slope in zip(model.parameters(), slopes, strict=True):
        torch.testing.assert_close(weight.grad, slope / length, rtol=1e-4, atol=1e-6)


def test_the_rate_rises_over_a_tenth_and_falls_as_a_cosine_to_a_twentieth(seed, monkeypatch):
    rates = []

    class Told(Learner):
        def __call__(self, *batch):
            rates.append(self.optimiser.param_groups[1]["lr"] / 0.01)
            return super().__call__(*batch)

    monkeypatch.setattr(training, "Learner", Told)
    model = HybridLM(99, 8, [DistinctAttention(8, Heads(count=1, size=8))])
    list(train(model, batches(TASK, seed, 1), steps=40, rate=0.01))
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1], rel=0.02)
    assert rates[20] == pytest.approx((1 + 0.05) / 2)
    assert rates[10] + rates[30] == pytest.approx(1 + 0.05)
    assert rates[-1] == pytest.approx(0.05, abs=0.01)
    assert rates[3:] == sorted(rates[3:], reverse=True)


def test_what_is_decayed_shrinks_by_the_rate_and_a_hundredth():
    """A batch that asks nothing has no gradient, so decay alone moves a weight."""
    model, tokens = small(), torch.zeros(2, 9, dtype=torch.long)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    learner = Learner(model)
    learner.set_rate(0.5)
    learner(tokens, torch.full_like(tokens, SILENT))
    after = dict(model.named_parameters())
    for name in ("embed.weight", "blocks.0.mixer.project.in_proj.weight"):
        torch.testing.assert_close(after[name], before[name] * (1 - 0.5 * 0.01))
    for name in ("norm", "blocks.0.mixer.project.scale", "blocks.0.mixer.project.conv.weight"):
        assert torch.equal(after[name], before[name])


def gated(window=1):
    return cache(reading=Reading(window=window), gate=WriteGate(64))


def test_reads_are_those_of_the_last_batch_alone():
    """A loss of a batch that was evaluated, or that fits the window, knows no older batch."""
    long, short = torch.randn(2, 30, 64), torch.randn(2, 12, 64)
    layer = gated(window=13)
    layer(long)
    assert layer.slots_per_token > 0
    layer(short)
    assert layer.write_loss() == 0
    assert layer.slots_per_token is None
    layer(long)
    layer.eval()(short)
    assert layer.write_loss(torch.ones(2, 12, dtype=torch.bool)) == 0


@pytest.mark.parametrize("n", [0, 10, 30])
def test_padding_does_not_dilute_what_a_gate_learns(n):
    layer, x = gated(), torch.randn(2, 20, 64)
    layer.project.eval()  # the mean key stays where it is
    layer(x)
    alone = layer.write_loss()
    real = (torch.arange(n + 20) >= n).expand(2, -1)
    layer(torch.cat([torch.zeros(2, n, 64), x], 1), mask=real)
    torch.testing.assert_close(layer.write_loss(), alone)


def test_a_gate_learns_from_the_queries_that_are_asked():
    """Where nothing is asked no token is wanted; what one query reads, that query asks for."""
    layer, x = gated(), torch.randn(2, 20, 64)
    asked = torch.zeros(2, 20, dtype=torch.bool)
    logit = layer.gate.logit(x[..., 0], x)
    layer(x)
    shut = torch.nn.functional.softplus(logit).mean()  # how wrong it is where none is wanted
    torch.testing.assert_close(layer.write_loss(asked), shut)
    layer(x)
    assert not torch.isclose(layer.write_loss(~asked), shut)
    asked[:, 0] = True  # the first query has nothing before it to read
    layer(x)
    torch.testing.assert_close(layer.write_loss(asked), shut)


def test_recall_counts_the_asked_and_leaves_the_mode_alone():
    model = torch.nn.Embedding.from_pretrained(torch.eye(5))  # says each token again
    tokens, targets = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[1, 0, SILENT, SILENT]])
    assert recall(model, tokens, targets) == 0.5
    assert model.training


def test_a_sweep_gives_fewer_slots_for_larger_tau_and_puts_tau_back(seed):
    model = small()
    rows = sweep(model, [0.0, 0.5, 2.0], *asked(TASK, seed, 4))
    slots = [row[2] for row in rows]
    assert slots[0] > slots[1] > slots[2]
    assert slots[2] == pytest.approx(1 / TASK.n_tokens)
    assert float(model.mixers[0].tau) == 0.15


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


RIGHT, RISING = CHANCE / 2, [0.0, 0.1, 0.2, 0.3]
SEEN = {  # slots per token and losses at each look, tau, and what is said
    "fell": ([0.8, 0.5, 0.19, 0.1], [CHANCE] * 4, None, "fell from 0.800 to 0.190 by step 2"),
    "tau rises": ([0.8, 0.4, 0.15, 0.1], [CHANCE] * 4, [0.0, 0.1, 0.3, 0.3], None),
    "after the ramp": ([0.8, 0.4, 0.05], [CHANCE] * 3, [0.0, 0.3, 0.3], "from 0.400 to 0.050"),
    "the most there were": ([0.1, 0.8, 0.15], [CHANCE] * 3, None, "from 0.800 to 0.150"),
    "something is learned": ([0.8, 0.1], [CHANCE, RIGHT], None, None),
    "fell a little": ([0.8, 0.3], [CHANCE] * 2, None, None),
    "few while tau rises": ([1.0, 0.5, 0.02, 0.02], [CHANCE] * 4, RISING, "0.020 by step 2"),
    "few from the start": ([0.02] * 4, [CHANCE] * 4, None, "0.020 by step 1"),
    "the mean key is unknown": ([0.01, 0.6, 0.5], [CHANCE] * 3, None, None),
    "few are enough": ([1.0, 0.01, 0.01], [CHANCE, RIGHT, RIGHT], RISING[:3], None),
}


@pytest.mark.parametrize("case", SEEN)
def test_slots_that_fall_too_soon_are_announced_once(case):
    slots, losses, taus, wanted = SEEN[case]
    said = watched(slots, losses, taus)
    assert len(said) == (wanted is not None)
    assert all(re.search(wanted, text) and "Halve tau" in text for text in said)


def test_a_healthy_ramp_is_no_alarm(seed):
    """Distinct tokens stay apart whatever tau does, though nothing is learned all the while."""
    model = HybridLM(TASK.vocabulary, 64, [ssm(), cache()])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        words = {"steps": 30, "rate": 1e-4, "ramp": Ramp(0.4), "chance": CHANCE}
        seen = list(train(model, batches(TASK, seed, 8), **words))
    assert all(step.loss > 0.95 * CHANCE for step in seen)


@pytest.mark.parametrize("ramp", [Ramp(0.4, 0.0, 0.9), None])
def test_a_collapse_in_training_is_announced(ramp, seed):
    """On a ramp embeddings hardly differ beside what they share, and the mean key stays unknown;
    with a large tau from the start dim embeddings merge before they differ."""
    if ramp:
        layers = [DistinctAttention(64, Heads(count=1, size=64, centre=False))]
    else:
        layers = [ssm(), cache(concentration=Concentration.fixed(0.5))]
    model = HybridLM(TASK.vocabulary, 64, layers)
    with torch.no_grad():
        model.embed.weight.mul_(0.1 if ramp else 0.06).add_(1 if ramp else 0)
    words = {"ramp": ramp, "steps": 20} if ramp else {"rate": 5e-3, "steps": 30}
    with pytest.warns(CollapseWarning, match="as few as" if ramp else "fell"):
        list(train(model, batches(TASK, seed, 8), chance=CHANCE, **words))


@pytest.mark.parametrize(("n_tokens", "few", "enough"), [(16, 1, 2), (96, 2, 4), (4000, 2, 5)])
def test_too_few_are_those_of_a_sequence(n_tokens, few, enough):
    """Four letters repeated for 4,000 tokens have few slots for each token, and are told apart."""
    for slots, said in ((few, 1), (enough, 0)):
        found = watched([slots / n_tokens] * 4, [CHANCE] * 4, taus=RISING, n_tokens=n_tokens)
        assert len(found) == said
