import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import LFU, LRU
from reproduction.data import RecallTask


def held(memory, items):
    """The items that are still in memory after this stream of unit vectors."""
    memory.write(np.eye(12)[items], np.eye(12)[items])
    return set(memory._cache.slots.values.argmax(axis=1).tolist())


def test_lru_holds_the_items_used_last(rng):
    items = rng.integers(12, size=300).tolist()
    latest = list(dict.fromkeys(reversed(items)))[:5]
    assert held(LRU(budget=5), items) == set(latest)


def test_lfu_that_never_forgets_holds_on_to_old_favourites():
    assert held(LFU(budget=3, decay=1.0), [0] * 9 + [1] * 9 + [2, 3, 4, 5] * 3) == {0, 1, 5}


def test_lfu_that_forgets_lets_old_favourites_go():
    assert held(LFU(budget=3, decay=0.5), [0] * 9 + [1] * 9 + [2, 3, 4, 5] * 3) == {3, 4, 5}


def test_lfu_is_the_cache_with_a_budget(rng):
    episode = RecallTask().draw(rng)
    frequent, cache = LFU(budget=20), Cache(Concentration.fixed(tau=0.3, budget=20))
    ids = frequent.write(episode.keys, episode.values)
    np.testing.assert_array_equal(ids, cache.write(episode.keys, episode.values))


@pytest.mark.parametrize(("decay", "expected"), [(0.98, 1.0), (1.0, 0.36)])
def test_old_favourites_ruin_a_stream_that_alternates(rng, decay, expected):
    recall = []
    for memory in (LFU(budget=30, tau=0.4, decay=decay) for _ in range(10)):
        for n_items in (6, 30) * 4:
            phase = RecallTask(n_items=n_items, repeats=6).draw(rng, n_queries=60)
            memory.write(phase.keys, phase.values)
            recall.append((memory.read(phase.queries).argmax(axis=1) == phase.answers).mean())
    assert np.mean(recall) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("peer", [LRU, LFU])
@pytest.mark.parametrize(
    "wrong", [{"budget": 0}, {"budget": 4, "tau": -1}, {"budget": 4, "theta": 0}]
)
def test_settings_that_mean_nothing_are_refused(peer, wrong):
    with pytest.raises(ValueError, match="must"):
        peer(**wrong)
