import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import TTL
from reproduction.data import RecallTask


def plain(items, idle):
    """Slot ids of a stream of distinct directions, and how many slots are left."""
    slots, ids = {}, []
    for time, item in enumerate(items):
        if item not in slots:
            slots[item] = [len(set(ids)), time]
        slots[item][1] = time
        ids.append(slots[item][0])
        slots = {i: slot for i, slot in slots.items() if time - slot[1] <= idle}
    return ids, len(slots)


@pytest.mark.parametrize("idle", [1, 3, 40])
def test_it_does_what_the_plain_loop_does(rng, idle):
    items = rng.integers(10, size=200)
    fresh = TTL(idle)
    ids = fresh.write(np.eye(10)[items], np.eye(10)[items])
    assert (ids.tolist(), len(fresh)) == plain(items.tolist(), idle)


def test_a_slot_in_use_never_leaves():
    fresh = TTL(idle=2)
    assert fresh.write(np.eye(2)[[0, 1, 1] * 30], np.ones((90, 1))).max() == 1


def test_a_slot_leaves_when_it_was_idle_for_longer_than_granted():
    fresh = TTL(idle=2)
    assert fresh.write(np.eye(2)[[0, 1, 1, 1, 0]], np.ones((5, 1))).tolist() == [0, 1, 1, 1, 2]


def test_without_an_end_it_is_the_cache(rng):
    episode = RecallTask(noise=0.6).draw(rng)
    fresh, cache = TTL(idle=1000), Cache(Concentration.fixed(tau=0.3))
    ids = fresh.write(episode.keys, episode.values)
    np.testing.assert_array_equal(ids, cache.write(episode.keys, episode.values))


def test_it_breathes_with_a_stream_that_alternates(rng):
    recall, slots = [], []
    for _ in range(20):
        fresh = TTL(idle=40, tau=0.4)
        for n_items in (6, 30) * 4:
            phase = RecallTask(n_items=n_items, repeats=6).draw(rng, n_queries=60)
            fresh.write(phase.keys, phase.values)
            recall.append((fresh.read(phase.queries).argmax(axis=1) == phase.answers).mean())
            slots.append(len(fresh))
    assert np.mean(recall) == pytest.approx(0.89, abs=0.02)
    assert np.mean(slots) == pytest.approx(16.0, abs=0.8)


@pytest.mark.parametrize("wrong", [{"idle": 0}, {"tau": -0.1}, {"tau": 2.5}, {"theta": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        TTL(**wrong)
