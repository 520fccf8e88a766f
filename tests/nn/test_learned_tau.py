"""A gate that learns tau inside a layer: it trains end to end, and the rule takes over its tau."""

import numpy as np
import pytest
import torch

from distinctkv import Concentration
from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    Heads,
    HybridLM,
    KeyNoveltyGate,
    Mamba2,
    NoveltyGate,
    Reading,
    checkpoint,
)
from distinctkv.nn.train import Ramp, recall, set_tau, train
from reproduction.data import SILENT, MQARTask

E, HEADS = 16, Heads(count=2, size=8)
TRAINED = MQARTask(n_items=8, repeats=3, n_keys=64, n_values=16)
PAPER = MQARTask(n_items=64, repeats=4, n_keys=64, n_values=16)  # the paper's 64 items, four times
FIRST = Reading("distinct", "first")
BUDGET = 18  # keys of a training sequence: 8 names, at most 8 values, a blank, the first token


def gated(gate=None, **more):
    return DistinctAttention(E, HEADS, gate=gate or NoveltyGate(), **more)


def trained(layer, seed, steps=250, **more):
    """Recall and slots on the paper's stream of a model trained on a shorter one."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = HybridLM(TRAINED.vocabulary, 32, [Mamba2(32, states=16, head=32), layer])

    def batches():
        while True:
            drawn = TRAINED.draw(rng, 16)
            yield torch.from_numpy(drawn.tokens), torch.from_numpy(drawn.targets)

    for _ in train(model, batches(), steps=steps, rate=1e-2, every=steps, **more):
        pass
    drawn = PAPER.draw(np.random.default_rng((seed, 1)), 8)
    targets = torch.from_numpy(np.where(drawn.asked, drawn.targets, SILENT))
    found = recall(model, torch.from_numpy(drawn.tokens), targets)
    return found, float(layer.slots_per_token) * PAPER.n_tokens


@pytest.mark.slow
def test_it_trains_to_the_recall_of_the_hard_rule_but_not_from_a_shut_gate(seed):
    """From tau .4, from open (all tokens kept) and from a slope of .1 it recalls as the rule does.

    From tau 1.8 hardly a token is kept until tau has come down, which takes most of the steps.
    """
    heads = Heads(1, 32, lag=1)
    rule, slots = trained(
        DistinctAttention(32, heads, concentration=Concentration.fixed(0.15), reading=FIRST), seed
    )
    assert rule > 0.9
    for slope, threshold in ((10.0, 0.4), (10.0, -1.0), (0.1, 0.1)):
        layer = DistinctAttention(32, heads, gate=NoveltyGate(slope, threshold), budget=BUDGET)
        found, used = trained(layer, seed, anneal=Ramp(1.0, 0.0, 0.5))
        assert found >= rule - 0.02, (slope, threshold)
        assert used < 1.5 * slots
        assert 0 < float(layer.tau) < 0.4
    shut = DistinctAttention(32, heads, gate=NoveltyGate(10.0, 1.8), budget=BUDGET)
    assert trained(shut, seed)[0] < 0.8


@pytest.fixture
def x(seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(6, E, generator=generator)
    return rows[torch.randint(6, (2, 20), generator=generator)]


def test_a_gate_that_keeps_all_is_full_attention(x, seed):
    torch.manual_seed(seed)
    heads = Heads(2, 8, centre=False)  # the mean key moves in training
    full = FullAttention(E, heads)
    layer = DistinctAttention(E, heads, gate=NoveltyGate(1000.0, -1.0))
    layer.project = full.project
    for training in (True, False):
        torch.testing.assert_close(layer.train(training)(x), full(x), rtol=0, atol=1e-5)


def test_a_sharp_gate_trains_on_what_the_rule_reads(x, seed):
    """Repeats are exact: where the soft gate is 0 or 1 both forms read the same."""
    torch.manual_seed(seed)
    heads = Heads(2, 8, taps=1, centre=False)
    layer = DistinctAttention(E, heads, gate=NoveltyGate(3000.0, 1e-2))
    torch.testing.assert_close(layer.train()(x), layer.eval()(x), rtol=0, atol=1e-5)


def test_the_penalty_counts_tokens_and_moves_tau_towards_the_budget(x):
    for budget, sign in ((1, 1), (19, -1)):
        layer = gated(NoveltyGate(0.1, 0.3), budget=budget)
        layer(x)
        kept = 20 * layer.slots_per_token
        loss = layer.write_loss()
        assert kept == 20 * layer.slots_per_token
        loss.backward()
        assert sign * -layer.gate.threshold.grad > 0
    assert layer.write_loss() == 0  # once for each batch


def test_a_weight_of_0_switches_the_penalty_off(x):
    layer = gated(budget=3)
    layer.penalty_weight.fill_(0)
    layer(x)
    assert layer.write_loss() == 0


@torch.no_grad()
def test_tau_is_the_threshold_and_can_be_chosen_afterwards(x):
    layer = gated(NoveltyGate(threshold=0.25)).eval()
    assert float(layer.tau) == 0.25
    set_tau(layer, 1.5)
    fixed = DistinctAttention(
        E, HEADS, concentration=Concentration.fixed(1.5), reading=FIRST
    ).eval()
    fixed.project = layer.project
    assert torch.equal(layer(x), fixed(x))


def test_16_bits_do_not_round_tau():
    gate = NoveltyGate(threshold=0.15)
    assert torch.equal(gated(gate).bfloat16().tau, torch.tensor(0.15))


@torch.no_grad()
def test_a_checkpoint_carries_what_was_learned(x, tmp_path):
    layer, other = gated(NoveltyGate(5.0, 0.7)).eval(), gated().eval()
    checkpoint.save(layer, tmp_path / "layer")
    checkpoint.load(other, tmp_path / "layer")
    assert torch.equal(other(x), layer(x))
    assert float(other.tau) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: gated(concentration=Concentration.fixed(0.3)), "tau is the gate's"),
        (lambda: gated(reading=Reading(window=2)), "leave reading out"),
        (lambda: gated(KeyNoveltyGate(E)), "use NoveltyGate"),
        (lambda: gated(budget=0), "budget is the number of tokens"),
        (lambda: DistinctAttention(E, HEADS, budget=8), "budget is the number of tokens"),
        (
            lambda: train(HybridLM(9, E, [gated()]), [], steps=1, ramp=Ramp(0.3)),
            "leave ramp out",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()
