import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.data import RecallTask
from reproduction.data.synthetic import occurrences


def test_every_item_comes_as_often_as_asked(rng):
    episode = RecallTask(n_items=5, repeats=3).draw(rng)
    np.testing.assert_array_equal(np.bincount(episode.items), [3] * 5)


def test_tokens_of_an_item_agree_on_its_class(rng):
    episode = RecallTask(n_items=5, repeats=3).draw(rng)
    for item in range(5):
        assert len(np.unique(episode.values[episode.items == item], axis=0)) == 1


def test_values_are_one_hot(rng):
    values = RecallTask(n_items=5, repeats=3).draw(rng).values
    assert set(np.unique(values)) == {0.0, 1.0}
    np.testing.assert_array_equal(values.sum(axis=1), 1.0)


def test_keys_and_queries_are_unit_rows(rng):
    episode = RecallTask().draw(rng, n_queries=9)
    for rows in (episode.keys, episode.queries):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)


def test_a_query_is_nearest_to_a_token_of_its_answer(rng):
    episode = RecallTask().draw(rng, n_queries=9)
    nearest = (episode.queries @ episode.keys.T).argmax(axis=1)
    np.testing.assert_array_equal(episode.values[nearest].argmax(axis=1), episode.answers)


def test_without_noise_repeats_are_identical(rng):
    episode = RecallTask(n_items=4, repeats=6, noise=0.0).draw(rng)
    assert len(np.unique(episode.keys, axis=0)) == 4


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_repeats_are_as_alike_as_the_noise_says(rng, noise):
    prototypes = unit(rng.standard_normal((4000, 64)))
    one, other = occurrences(rng, prototypes, noise), occurrences(rng, prototypes, noise)
    assert (one * other).sum(axis=1).mean() == pytest.approx(1 / (1 + noise**2), abs=0.01)


def test_the_same_generator_draws_the_same_episode(seed):
    one, other = (RecallTask().draw(np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.queries, other.queries)


@pytest.mark.parametrize("wrong", [{"n_items": 0}, {"repeats": 0}, {"noise": -0.1}, {"width": 0}])
def test_numbers_that_draw_no_stream_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        RecallTask(**wrong)
