"""Recall sequences: what is asked can be answered from what came before, and nothing else is."""

import numpy as np
import pytest

from reproduction.data import SILENT, MQARTask

TASKS = {
    "plain": MQARTask(n_items=6, repeats=3, n_keys=20, n_values=9),
    "once": MQARTask(n_items=6, repeats=1, n_keys=6, n_values=9),
    "overwrite": MQARTask(n_items=6, repeats=4, n_keys=20, n_values=9, renewed=2),
    "siblings": MQARTask(n_items=7, repeats=3, n_keys=20, n_values=9, siblings=3),
}


@pytest.fixture(params=TASKS.values(), ids=TASKS)
def task(request):
    return request.param


def replay(task, tokens):
    """Walk a sequence with a dictionary: (position, key, value said, value known before)."""
    size = 2 if task.siblings == 1 else 3
    known = {}
    for start in range(0, len(tokens), size):
        key, value = tuple(tokens[start : start + size - 1]), int(tokens[start + size - 1])
        yield start + size - 2, key, value, known.get(key)
        if value:
            known[key] = value


def test_a_dictionary_answers_every_question(task, rng):
    batch = task.draw(rng, 4)
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        for place, _, value, known in replay(task, tokens):
            if targets[place] != SILENT:
                assert targets[place] == known
                assert value in (0, known)


def test_every_key_met_before_is_asked_unless_it_is_bound_anew(task, rng):
    batch = task.draw(rng, 4)
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        for place, _, value, known in replay(task, tokens):
            assert (targets[place] != SILENT) == (known is not None and value in (0, known))


def test_each_item_comes_as_often_as_asked_and_is_queried_once(task, rng):
    (tokens,) = task.draw(rng, 1).tokens
    said = [(key, value != 0) for _, key, value, _ in replay(task, tokens)]
    names = {key for key, _ in said}
    assert len(names) == task.n_items
    assert all(said.count((key, True)) == task.repeats for key in names)
    assert all(said.count((key, False)) == 1 for key in names)


def test_queries_stand_at_the_end(task, rng):
    batch = task.draw(rng, 3)
    assert (batch.asked.sum(1) == task.n_items).all()
    first = batch.asked.argmax(1)
    assert (first >= task.n_tokens * task.repeats // (task.repeats + 1)).all()
    assert (batch.targets[batch.asked] != SILENT).all()


def test_tokens_fit_the_vocabulary_and_the_length(task, rng):
    batch = task.draw(rng, 5)
    assert batch.tokens.shape == (5, task.n_tokens)
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < task.vocabulary


def test_an_overwritten_item_is_asked_by_its_newest_value(rng):
    task = TASKS["overwrite"]
    (tokens,) = task.draw(rng, 1).tokens
    bound = {}
    for _, key, value, _ in replay(task, tokens):
        bound.setdefault(key, []).append(value)
    for old, older, new, newer, blank in bound.values():
        assert old == older != new == newer
        assert blank == 0


def test_siblings_share_a_first_token_and_families_a_second(rng):
    task = TASKS["siblings"]
    (tokens,) = task.draw(rng, 1).tokens
    keys = {key for _, key, _, _ in replay(task, tokens)}
    assert len({stem for stem, _ in keys}) == 3
    assert len({ending for _, ending in keys}) == 3


def test_the_same_generator_draws_the_same_batch(seed, task):
    one, other = (task.draw(np.random.default_rng(seed), 2) for _ in range(2))
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_array_equal(one.targets, other.targets)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n_items": 0}, "n_items must be at least 1, got 0"),
        ({"repeats": 2, "renewed": 2}, "renewed must be 0 to 1"),
        ({"n_items": 30, "n_keys": 20}, "30 items need 30 key tokens, got 20"),
        ({"repeats": 2, "renewed": 1, "n_values": 1}, "a value can only change"),
    ],
)
def test_numbers_that_draw_no_sequence_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        MQARTask(**wrong)


def test_no_sequences_are_refused(rng):
    with pytest.raises(ValueError, match="1 sequence or more, got 0"):
        MQARTask().draw(rng, 0)
