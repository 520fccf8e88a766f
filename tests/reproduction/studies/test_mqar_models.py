from dataclasses import replace

import numpy as np
import pytest
import torch

from distinctkv.nn.baselines import ScheduledAttention
from reproduction.data import SILENT, MQARTask
from reproduction.studies import mqar_models as models
from reproduction.studies.mqar_models import SMALL

TINY = replace(SMALL, width=16, head=16, states=(4, 4), steps=2, batch=2, items=(2,), tokens=16)


@pytest.mark.parametrize("name", models.NAMES)
def test_a_model_reports_its_size(name, seed):
    model = models.make_model(name, TINY).eval()
    models.set_slots(model, 20, 64)
    found = models.evaluate(model, np.random.default_rng(seed), models.make_task(TINY, 8, 64), 2)
    assert 0 <= found.recall <= 1
    assert found.bytes > 0
    if isinstance(model.mixers[1], ScheduledAttention):
        assert found.slots == 20
    if name == "full":
        assert found.slots == 64


def test_reading_in_chunks_changes_nothing(monkeypatch, seed):
    model, task = models.make_model("mass", TINY).eval(), models.make_task(TINY, 8, 64)
    whole = models.evaluate(model, np.random.default_rng(seed), task, 3)
    monkeypatch.setattr(models, "CHUNK", 10)
    chunks = models.evaluate(model, np.random.default_rng(seed), task, 3)
    assert (chunks.recall, chunks.slots) == (whole.recall, whole.slots)


@pytest.mark.parametrize("name", ["mass", "gated", "kvm", "full", "window"])
def test_keys_start_as_the_token_before_theirs(name, seed):
    torch.manual_seed(seed)
    project = models.make_model(name, TINY).mixers[1].project.eval()
    x = torch.randn(1, 6, 16)
    other = x.clone()
    other[:, 3] += 1
    (q, k, _, _), (q2, k2, _, _) = project(x), project(other)
    assert (k != k2).flatten(2).any(2).tolist() == [[False] * 4 + [True, False]]
    assert not torch.equal(q[:, 3], q2[:, 3])


@pytest.mark.slow
def test_two_slots_an_item_are_enough_to_recall_more_of_them_than_in_training(seed):
    """One for the token after the key, one for the token after the value."""
    size = replace(SMALL, steps=120)
    model = models.train_model(
        lambda size: models.make_model("mass", size), seed, size, "cpu", slots_per_item=1.0
    )
    task = models.make_task(size, 32, 256)
    found = models.evaluate(model, np.random.default_rng(seed), task, 4)
    assert found.recall > 0.95
    assert found.slots < 2.2 * 32


# Training sequences


@pytest.fixture
def drawn(seed):
    task = MQARTask(n_items=5, repeats=3, n_keys=9, n_values=4)
    return task, *models.draw(task, 6, torch.Generator().manual_seed(seed))


def test_every_item_comes_as_often_and_is_asked_for_once(drawn):
    task, tokens, _ = drawn
    keys = tokens[:, ::2]
    assert tokens.shape == (6, task.n_tokens)
    for row in keys.tolist():
        assert sorted(row.count(key) for key in set(row)) == [4] * 5
        assert sorted(row[-5:]) == sorted(set(row))
    assert keys.min() >= 1
    assert keys.max() <= 9


def test_the_answer_is_the_value_of_the_key_and_a_first_occurrence_has_none(drawn):
    _, tokens, targets = drawn
    for row, answers in zip(tokens.tolist(), targets.tolist(), strict=True):
        known = {}
        for place in range(0, len(row), 2):
            key, value = row[place : place + 2]
            assert answers[place] == known.get(key, SILENT)
            assert answers[place + 1] == SILENT
            assert place < 30 or value == 0
            known.setdefault(key, value)
        assert all(9 < value <= 13 for value in known.values())


def test_larger_numbers_of_items_are_added_one_by_one(rng):
    size = replace(SMALL, items=(2, 4, 8), grow=0.3)
    kinds = [{models.n_items(rng, size, done) for _ in range(40)} for done in (0, 0.15, 0.29, 0.3)]
    assert kinds == [{2}, {2, 4}, {2, 4, 8}, {2, 4, 8}]


def test_a_seed_draws_the_same_batches(seed):
    first, again = (models.batches(seed, SMALL, "cpu") for _ in range(2))
    for _ in range(4):
        (tokens, targets), (others, answers) = next(first), next(again)
        assert tokens.shape == (SMALL.batch, SMALL.tokens)
        assert torch.equal(tokens, others)
        assert torch.equal(targets, answers)
