import numpy as np
import pytest

from reproduction.baselines import KMeans
from reproduction.baselines.clustering import spread


def test_a_slot_is_the_mean_of_its_group():
    kmeans = KMeans(budget=2)
    kmeans.write(np.eye(2)[[0, 1, 0, 1]], [[1.0], [5.0], [3.0], [7.0]])
    np.testing.assert_allclose(kmeans.read(np.eye(2)), [[2.0], [6.0]], atol=1e-5)


def test_tokens_are_held_until_the_first_read_and_slots_after():
    kmeans = KMeans(budget=2)
    kmeans.write(np.eye(3)[[0, 1, 2, 0]], np.ones((4, 1)))
    before = len(kmeans), kmeans.nbytes
    kmeans.read(np.eye(3))
    assert (before, len(kmeans), kmeans.nbytes) == ((4, 64), 2, 32)


def test_nothing_is_written_after_the_fit():
    kmeans = KMeans(budget=2)
    kmeans.write(np.eye(2), np.ones((2, 1)))
    kmeans.read(np.eye(2))
    with pytest.raises(ValueError, match="fitted and its tokens are gone"):
        kmeans.write(np.eye(2), np.ones((2, 1)))


def test_slots_are_no_more_than_distinct_tokens():
    kmeans = KMeans(budget=5)
    kmeans.write(np.eye(2)[[0, 1, 0, 1, 0, 1]], np.ones((6, 1)))
    kmeans.read(np.eye(2))
    assert len(kmeans) == 2


@pytest.mark.parametrize("start", ["random", "k-means++"])
def test_the_seed_decides(start, rng, seed):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 2))
    answers = []
    for each in (seed, seed, seed + 1):
        kmeans = KMeans(6, start, tries=1, seed=each)
        kmeans.write(keys, values)
        answers.append(kmeans.read(keys))
    assert (answers[0] == answers[1]).all()
    assert (answers[0] != answers[2]).any()


def test_a_spread_start_takes_each_distinct_token_once(rng):
    keys = np.repeat(np.eye(4), 5, axis=0)
    assert np.unique(spread(keys, 4, rng), axis=0).shape == (4, 4)


def test_a_spread_start_ends_when_every_token_has_a_slot(rng):
    assert len(spread(np.eye(2)[[0, 1, 0, 1]], 4, rng)) == 2
