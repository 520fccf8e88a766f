"""Tests of the losses and streams by which gates are trained."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from distinctkv.nn.gates import NoveltyGate  # noqa: E402
from reproduction.data import RecallTask  # noqa: E402
from reproduction.studies import gating  # noqa: E402

SMALL = RecallTask(n_items=64, repeats=4, width=16, noise=0.0)


@pytest.fixture
def seen(rng):
    return gating.probe(rng, SMALL, 3)


@pytest.fixture
def logit(seen, seed):
    torch.manual_seed(seed)
    return torch.randn(seen.keys.shape[:2]).requires_grad_()


def test_chance_keeps_as_many_as_are_asked_for(logit):
    kept = gating.top_by_chance(logit, 64)
    assert (kept.sum(1) == 64).all()
    assert set(kept.unique().tolist()) == {0.0, 1.0}


def test_a_dropped_token_hears_what_keeping_it_would_bring(logit):
    worth = torch.zeros_like(logit)
    worth[:, 7] = 1
    (gating.top_by_chance(logit, 64) * worth).sum().backward()
    assert (logit.grad[:, 7] > 0).all()


def test_a_shift_of_all_logits_is_not_heard(logit):
    worth = torch.rand_like(logit)
    (gating.top_by_chance(logit, 64) * worth).sum().backward()
    assert logit.grad.sum().abs() < 1e-4


def test_uneven_streams_have_every_item_and_the_same_length(rng):
    found = gating.uneven(rng, SMALL)
    n_items = len(np.unique(found.items))
    assert len(found.keys) == SMALL.n_tokens
    assert 32 <= n_items <= 128
    assert n_items == found.items.max() + 1


def test_the_rule_recalls_every_item(seed):
    gate = NoveltyGate(slope=100.0, threshold=gating.APART)
    found = gating.trained(gate, gating.soft, SMALL, seed, 0, gating.even, asked=4)
    assert found.start == found.end == (1.0, 64.0)


@pytest.mark.parametrize("loss", [gating.soft, gating.by_chance, gating.to_the_rule])
def test_training_moves_a_gate_and_lowers_its_loss(loss, seed):
    gate = NoveltyGate(slope=1.0, threshold=0.0)
    test = gating.probe(np.random.default_rng(seed), SMALL, 8)
    torch.manual_seed(seed)
    before = loss(gate, test).item()
    gating.trained(gate, loss, SMALL, seed, 40, gating.even, asked=1)
    torch.manual_seed(seed)
    assert loss(gate, test).item() < before
