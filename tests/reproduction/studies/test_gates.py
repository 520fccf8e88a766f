from dataclasses import replace

import numpy as np
import pytest
import torch

from distinctkv.nn.gates import NoveltyGate
from reproduction.data import RecallTask
from reproduction.studies import gates
from reproduction.studies.runner import QUICK

SMALL = RecallTask(n_items=64, repeats=4, width=16, noise=0.0)


@pytest.fixture
def logit(rng, seed):
    torch.manual_seed(seed)
    return torch.randn(gates.probe(rng, SMALL, 3).keys.shape[:2]).requires_grad_()


@pytest.fixture(scope="module")
def short(seed):
    """All gates, hardly trained."""
    with pytest.MonkeyPatch.context() as patch:
        trainings = tuple(replace(one, steps=min(one.steps, 1)) for one in gates.TRAININGS)
        patch.setattr(gates, "TRAININGS", trainings)
        patch.setattr(gates, "STEPS", 1)
        patch.setattr(gates, "LAYER_STEPS", 1)
        patch.setattr(gates, "STREAMS", 1)
        patch.setattr(gates, "TEST_STREAMS", 2)
        return gates.run(range(seed, seed + 9), QUICK)


def test_two_parameters_are_right_before_they_are_trained(short):
    rows = {(row.table, row.name): row.measures for row in short.rows}
    assert rows["gates", "two"]["before"].mean == 1.0
    assert rows["gates", "key"]["recall"].mean < 0.5


def test_every_training_has_its_row_and_every_claim_its_number(short):
    names = [one.name for one in gates.TRAININGS if not one.full] + [*gates.LAYERS]
    assert [row.name for row in short.rows] == names
    assert short.rows[0].measures["recall"].n == 5
    assert len(short.claims) == 15
    assert len(short.seeds) == 5


def test_the_settings_are_those_that_the_gates_are_trained_with():
    settings = gates.settings(QUICK)
    assert (settings["kept"], settings["streams_per_step"]) == (gates.KEPT, gates.STREAMS)
    assert settings["learning_rate"] == 0.01


def test_sampling_keeps_the_budget(logit):
    kept = gates.sampled_top(logit, 64)
    assert (kept.sum(1) == 64).all()
    assert set(kept.unique().tolist()) == {0.0, 1.0}


def test_dropped_tokens_have_a_gradient_and_a_common_shift_has_none(logit):
    gain = torch.zeros_like(logit)
    gain[:, 7] = 1
    (gates.sampled_top(logit, 64) * gain).sum().backward()
    assert (logit.grad[:, 7] > 0).all()
    assert logit.grad.sum().abs() < 1e-4


def test_uneven_streams_have_every_item_and_the_same_length(rng):
    episode = gates.uneven(rng, SMALL)
    n_items = len(np.unique(episode.items))
    assert len(episode.keys) == SMALL.n_tokens
    assert 32 <= n_items <= 128
    assert n_items == episode.items.max() + 1


def test_the_rule_recalls_every_item(seed):
    gate = NoveltyGate(slope=100.0, threshold=gates.TAU)
    found = gates.train(gate, gates.soft_loss, SMALL, seed, 0, gates.even, n_test=4)
    assert found.start == found.end == (1.0, 64.0)


@pytest.mark.parametrize("loss", gates.LOSSES.values(), ids=gates.LOSSES)
def test_training_lowers_the_loss(loss, seed):
    gate = NoveltyGate(slope=1.0, threshold=0.0)
    test = gates.probe(np.random.default_rng(seed), SMALL, 8)
    torch.manual_seed(seed)
    before = loss(gate, test).item()
    gates.train(gate, loss, SMALL, seed, 30, gates.even, n_test=1)
    torch.manual_seed(seed)
    assert loss(gate, test).item() < before
