"""Gates: one signature for all, and what the two numbers of the paper do and do not show."""

from functools import partial

import numpy as np
import pytest
import torch

from distinctkv.nn.gates import (
    FLOOR,
    ContextGate,
    GumbelGate,
    KeyGate,
    KeyNoveltyGate,
    MetricGate,
    NoveltyGate,
    Probe,
    SaliencyGate,
    SignedGate,
    StraightThrough,
    SurpriseGate,
    WriteGate,
    decided,
    distillation,
    fit,
    rule_loss,
    score,
    task_loss,
)
from reproduction.data import RecallTask

D = 32
GATES = {
    "novelty": NoveltyGate,
    "signed": lambda: SignedGate(-1.0, 0.5),
    "key": lambda: KeyGate(D),
    "key and novelty": lambda: KeyNoveltyGate(D),
    "saliency": lambda: SaliencyGate(D),
    "metric": lambda: MetricGate(D),
    "context": lambda: ContextGate(D),
    "write": lambda: WriteGate(D),
    "surprise": lambda: SurpriseGate(D),
    "straight through": lambda: StraightThrough(KeyNoveltyGate(D)),
    "gumbel": lambda: GumbelGate(KeyNoveltyGate(D)),
}
TASK = RecallTask(n_items=12, repeats=3, n_classes=4, width=D, noise=0.0)


def probe(rng, n=4):
    drawn = [TASK.draw(rng, n_queries=None) for _ in range(n)]
    keys, values, queries, answers = (
        torch.from_numpy(np.stack([getattr(episode, name) for episode in drawn]))
        for name in ("keys", "values", "queries", "answers")
    )
    return Probe(keys.float(), values.float(), queries.float(), answers)


@pytest.fixture(params=GATES)
def gate(request, seed):
    torch.manual_seed(seed)
    return GATES[request.param]()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NoveltyGate(slope=np.inf), "slope must be finite, got inf"),
        (lambda: NoveltyGate(threshold=np.nan), "threshold must be a number, got nan"),
        (lambda: GumbelGate(NoveltyGate(), np.inf), "temperature must be finite"),
        (lambda: KeyGate(D, hidden=0), "hidden must be at least 1, got 0"),
        (lambda: KeyGate(D, layers=-1), "layers must be 0 or more, got -1"),
        (lambda: KeyNoveltyGate(0), "width must be at least 1, got 0"),
        (lambda: MetricGate(0), "width must be at least 1, got 0"),
        (lambda: SurpriseGate(-1), "width must be at least 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(make, said):
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_a_gate_is_a_log_probability_for_each_token(gate, rng):
    found = probe(rng)
    log_gate = gate(torch.rand(4, 36), found.keys)
    assert log_gate.shape == (4, 36)
    assert (log_gate <= 0).all()
    assert log_gate.isfinite().all()


def test_the_task_moves_every_number_of_a_gate(gate, rng):
    task_loss(gate, probe(rng), budget=12).backward()
    slopes = [weight.grad.abs().max() for weight in gate.parameters()]
    assert all(slope.isfinite() for slope in slopes)
    if not isinstance(gate, ContextGate):  # its network waits behind a layer of zeros
        assert all(slope > 0 for slope in slopes)


def test_the_two_numbers_are_right_before_training(rng):
    found = score(NoveltyGate(), probe(rng), budget=12)
    assert found.recall == 1.0
    assert found.kept == 12


def test_a_wrong_sign_is_wrong_at_the_start(rng):
    assert score(SignedGate(-5.0, 0.5), probe(rng), budget=12).recall < 0.9


def test_the_slope_stays_positive_and_starts_where_it_was_put():
    assert NoveltyGate(slope=0.1).slope.item() == pytest.approx(0.1)
    assert NoveltyGate(slope=50).slope.item() == pytest.approx(50)
    with pytest.raises(ValueError, match=r"slope must be above 0, got -1"):
        NoveltyGate(slope=-1)


def test_training_keeps_the_two_number_gate_right(rng):
    loss = partial(task_loss, budget=12)
    found = fit(NoveltyGate(), loss, lambda: probe(rng), probe(rng), budget=12, steps=20)
    assert found.start.recall == found.end.recall == 1.0


def test_a_network_learns_the_rule_by_distillation(rng, seed):
    torch.manual_seed(seed)
    loss = partial(rule_loss, tau=0.01)
    found = fit(KeyNoveltyGate(D), loss, lambda: probe(rng), probe(rng), budget=12, steps=150)
    assert found.start.recall < 0.9
    assert found.end.recall > 0.99
    assert found.end.kept == pytest.approx(12, abs=0.5)


def test_a_dropped_token_hears_what_keeping_it_would_do(rng):
    """The slope at a hard 0 is that of the gate, however small the weight it has."""
    logit = torch.tensor([-1.0, 2.0], requires_grad=True)
    read = (decided(logit) + torch.tensor([3.0, 0.0])).softmax(0) @ torch.tensor([1.0, 0.0])
    read.backward()
    keep = 0.25 / np.cosh(-0.5) ** 2  # slope of the sigmoid at -1
    assert logit.grad[0].item() == pytest.approx(np.exp(3) * keep, rel=0.01)
    assert decided(logit)[0].exp().item() == pytest.approx(FLOOR, rel=0.01)


def test_noise_decides_in_training_only(seed):
    torch.manual_seed(seed)
    gate = GumbelGate(SignedGate(0.0, 0.0))
    novelty = torch.rand(1000)
    kept = gate(novelty, novelty[:, None]).exp().round().mean().item()
    assert 0.4 < kept < 0.6
    gate.eval()
    assert gate(novelty, novelty[:, None]).exp().max().item() == pytest.approx(FLOOR, rel=0.01)


@pytest.mark.parametrize("temperature", [30.0, 60.0])
def test_a_warmer_gate_has_a_gentler_slope(temperature, seed):
    """Where the noise is little beside the temperature T the slope at a kept token is 1 / (4 T)."""
    torch.manual_seed(seed)
    inner = SignedGate(0.0, 0.0)
    gate = GumbelGate(inner, temperature)
    log_gate = gate(torch.ones(1000), torch.ones(1000, 1))
    kept = log_gate.exp() > 0.5
    (slope,) = torch.autograd.grad(log_gate[kept].mean(), inner.slope)
    assert slope.item() == pytest.approx(1 / (4 * temperature), rel=0.02)


@pytest.mark.parametrize("training", [True, False])
def test_a_gate_is_trained_in_training_and_left_in_its_mode(training, rng):
    gate, modes = GumbelGate(NoveltyGate()).train(training), []

    def loss(gate, found):
        modes.append(gate.training)
        return task_loss(gate, found, budget=12)

    fit(gate, loss, lambda: probe(rng), probe(rng), budget=12, steps=2)
    assert modes == [True, True]
    assert gate.training == training


def test_a_metric_maps_each_head_as_it_maps_one(rng):
    gate, found = MetricGate(D), probe(rng)
    torch.nn.init.normal_(gate.map)
    both = torch.stack([found.keys, found.keys.flip(1)], 2)
    torch.testing.assert_close(gate.embed(both)[:, :, 0], gate.embed(found.keys))
    torch.testing.assert_close(gate.embed(both).norm(dim=-1), torch.ones(4, 36, 2))


def test_a_context_gate_starts_as_the_plain_one():
    novelty, hidden = torch.rand(3, 5), torch.randn(3, 5, D)
    torch.testing.assert_close(ContextGate(D)(novelty, hidden), NoveltyGate()(novelty, hidden))


def test_distillation_is_least_when_the_gate_is_the_rule():
    lead = torch.tensor([True, False, False])
    sure = torch.tensor([0.999, 0.001, 0.001]).logit()
    assert distillation(sure, lead) < distillation(sure.flip(0), lead)
    assert distillation(torch.tensor([90.0, 90.0, -90.0]), lead).isfinite()


def test_a_gate_that_is_sure_and_wrong_hears_of_it():
    for logit in (20.0, 200.0):
        wrong = torch.tensor([logit, -logit], requires_grad=True)
        distillation(wrong, torch.tensor([False, True])).backward()
        assert wrong.grad.tolist() == pytest.approx([0.5, -0.5])


def test_saliency_has_the_papers_number_of_weights():
    assert sum(weight.numel() for weight in SaliencyGate(128).parameters()) == 140_065 - 123_424
