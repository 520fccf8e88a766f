import numpy as np
import pytest

from reproduction.baselines import Redundancy
from reproduction.data import RecallTask


def plain(keys, budget):
    """Places kept, by looking at all pairs at every step."""
    kept = []
    for t in range(len(keys)):
        kept.append(t)
        if len(kept) > budget:
            similar = keys[kept] @ keys[kept].T
            similar[np.tril_indices(len(kept))] = -np.inf
            del kept[int(similar.argmax()) // len(kept)]
    return kept


@pytest.mark.parametrize("budget", [1, 2, 7, 30])
@pytest.mark.parametrize("noise", [0.1, 1.0, 5.0])
def test_it_keeps_what_a_search_of_all_pairs_keeps(rng, budget, noise):
    episode = RecallTask(n_items=12, repeats=9, width=6, noise=noise).draw(rng)
    distinct = Redundancy(budget)
    distinct.write(episode.keys, np.arange(108.0)[:, None])
    assert distinct._values[:, 0].tolist() == plain(episode.keys, budget)


def test_the_older_of_two_twins_leaves():
    distinct = Redundancy(budget=2)
    distinct.write(np.eye(2)[[0, 0, 1]], [[1.0], [2.0], [3.0]])
    assert distinct._values[:, 0].tolist() == [2.0, 3.0]


def test_a_twin_that_has_left_is_forgotten():
    # Tokens 1 and 2 are alike, 0 a little like 1; with 1 gone, 0 is like nobody.
    keys = [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, -0.1], [0.0, 0.2, 1.0], [0.0, 0.0, 1.0]]
    distinct = Redundancy(budget=3)
    distinct.write(keys, np.arange(5.0)[:, None])
    assert distinct._values[:, 0].tolist() == [0.0, 2.0, 4.0]


def test_a_budget_of_the_distinct_items_holds_them_all(rng):
    episode = RecallTask().draw(rng, n_queries=200)
    distinct = Redundancy(budget=64)
    distinct.write(episode.keys, episode.values)
    assert (distinct.read(episode.queries).argmax(axis=1) == episode.answers).all()
