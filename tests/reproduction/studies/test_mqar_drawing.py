from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from reproduction.data.mqar import SILENT, MQARTask
from reproduction.studies import mqar_drawing as drawing
from reproduction.studies.mqar_models import SMALL


@pytest.fixture
def drawn(seed):
    task = MQARTask(n_items=5, repeats=3, n_keys=9, n_values=4)
    return task, *drawing.draw(task, 6, torch.Generator().manual_seed(seed))


def test_every_item_comes_as_often_and_is_asked_for_once(drawn):
    task, tokens, _ = drawn
    keys = tokens[:, ::2]
    assert tokens.shape == (6, task.n_tokens)
    for row in keys.tolist():
        assert sorted(row.count(key) for key in set(row)) == [4] * 5
        assert sorted(row[-5:]) == sorted(set(row))
    assert keys.min() >= 1
    assert keys.max() <= 9


def test_the_answer_is_the_value_the_key_had_and_the_first_is_not_asked(drawn):
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


def test_more_items_come_in_one_after_another(rng):
    size = replace(SMALL, items=(2, 4, 8), grow=0.3)
    kinds = [{drawing.n_items(rng, size, done) for _ in range(40)} for done in (0, 0.15, 0.29, 0.3)]
    assert kinds == [{2}, {2, 4}, {2, 4, 8}, {2, 4, 8}]


def test_a_seed_draws_the_same_batches(seed):
    first, again = (drawing.batches(seed, SMALL, "cpu") for _ in range(2))
    for _ in range(4):
        (tokens, targets), (others, answers) = next(first), next(again)
        assert tokens.shape == (SMALL.batch, SMALL.tokens)
        assert torch.equal(tokens, others)
        assert torch.equal(targets, answers)
