import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import HAM, LFU, LRU, NEC, TTL, Attention, GroupSamples, SubGen
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


def ttl_by_hand(items, idle):
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
    assert (ids.tolist(), len(fresh)) == ttl_by_hand(items.tolist(), idle)


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


def test_a_key_beyond_delta_opens_a_group():
    memory = GroupSamples(delta=1.0)
    angles = np.radians([0, 59, 61, 120])
    keys = np.column_stack([np.cos(angles), np.sin(angles)])
    assert memory.write(keys, np.ones((4, 1))).tolist() == [0, 0, 1, 1]


def test_groups_are_the_slots_of_the_cache_at_the_same_radius(rng):
    keys = rng.standard_normal((80, 6))
    memory, cache = GroupSamples(delta=0.8), Cache(Concentration.fixed(tau=0.32))
    np.testing.assert_array_equal(
        memory.write(keys, np.ones((80, 1))), cache.write(keys, np.ones((80, 1)))
    )


def test_a_repeat_opens_no_group_however_small_delta(rng):
    keys = rng.standard_normal((40, 6))
    ids = GroupSamples(delta=1e-6).write(np.concatenate([keys, keys]), np.ones((80, 1)))
    assert ids.tolist() == [*range(40), *range(40)]


def test_enough_samples_are_full_attention(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    memory, attention = GroupSamples(delta=0.8, samples=20), Attention()
    memory.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(memory.read(keys), attention.read(keys))


def test_a_sample_weighs_as_the_tokens_it_stands_for():
    memory = GroupSamples(delta=0.5, theta=1.0)
    memory.write(np.eye(2)[[0, 0, 0, 1]], [[1.0], [1.0], [1.0], [0.0]])
    assert memory.read([[1.0, 1.0]])[0, 0] == pytest.approx(0.75)


def test_samples_are_drawn_evenly_from_a_group(seed):
    picked = []
    for each in range(seed, seed + 200):
        memory = GroupSamples(delta=0.5, seed=each)
        memory.write(np.ones((10, 2)), np.arange(10.0)[:, None])
        picked.append(memory.read(np.ones((1, 2)))[0, 0])
    assert np.mean(picked) == pytest.approx(4.5, abs=1.0)
    assert set(picked) == set(range(10))


@pytest.mark.parametrize(("values", "expected"), [(64, 0.656), (128, 0.863)])
def test_subgen_recalls_the_items_that_it_drew(rng, values, expected):
    """An item is drawn or not; a guess among 16 classes is right now and then."""
    recall = []
    for each in range(40):
        episode, subgen = RecallTask().draw(rng, None), SubGen(values, seed=each)
        subgen.write(episode.keys, episode.values)
        recall.append((subgen.read(episode.queries).argmax(axis=1) == episode.answers).mean())
    assert np.mean(recall) == pytest.approx(expected, abs=0.03)


def test_subgen_estimates_attention_without_bias(rng):
    keys, values = rng.standard_normal((12, 4)), rng.standard_normal((12, 2))
    attention = Attention(theta=1.0)
    attention.write(keys, values)
    found = []
    for each in range(300):
        subgen = SubGen(values=30, delta=1e-6, seed=each, theta=1.0)
        subgen.write(keys, values)
        found.append(subgen.read(keys[:3]))
    np.testing.assert_allclose(np.mean(found, axis=0), attention.read(keys[:3]), atol=0.05)


def test_subgen_draws_by_the_square_of_a_values_length():
    firsts = 0
    for each in range(300):
        subgen = SubGen(values=1, seed=each)
        subgen.write(np.eye(2), [[1.0], [3.0]])
        firsts += bool(subgen._tokens_values[0, 0] == 1)  # no public name: which token it drew
    assert firsts / 300 == pytest.approx(0.1, abs=0.06)


def test_a_token_that_the_state_predicts_is_not_kept():
    ham = HAM(error=0.5, rate=1.0)
    assert ham.write(np.eye(2)[[0, 1, 0, 1]], [[1.0], [2.0], [1.0], [2.0]]).tolist() == [
        0,
        1,
        -1,
        -1,
    ]


def test_a_token_whose_value_has_changed_is_kept():
    ham = HAM(error=0.5, rate=1.0)
    assert ham.write([[1.0, 0.0]] * 2, [[1.0], [5.0]]).tolist() == [0, 1]


def test_what_the_state_has_lost_is_kept_again():
    ham = HAM(error=0.5, rate=1.0)
    keys = [[1.0, 0.0], [0.8, 0.6], [1.0, 0.0]]
    assert ham.write(keys, [[1.0], [-1.0], [1.0]]).tolist() == [0, 1, 2]


def test_a_query_near_no_token_is_answered_by_the_state():
    ham = HAM(error=10.0, rate=1.0)
    ham.write(np.eye(3), [[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(ham.read([[0.0, 0.6, 0.8]]), [[3.6]], atol=1e-5)


def test_a_query_near_a_token_is_answered_by_it():
    ham = HAM(error=0.5, rate=0.1, near=0.9)
    ham.write([[1.0, 0.0]], [[1.0]])
    np.testing.assert_allclose(ham.read([[1.0, 0.1], [0.8, 0.6]]), [[1.0], [0.08]], atol=1e-5)


def test_at_a_cosine_of_one_a_repeat_is_answered_by_its_token(rng):
    ham = HAM(error=0.1, near=1.0, theta=1e-3)
    keys, values = rng.standard_normal((50, 7)), np.eye(50)
    ham.write(keys, values)
    np.testing.assert_allclose(ham.read(keys), values, atol=1e-5)


def test_the_state_is_counted():
    ham = HAM(error=10.0)
    ham.write(np.eye(3), np.ones((3, 2)))
    assert (len(ham), ham.nbytes) == (3, 4 * 3 * 2)


def test_an_exact_repeat_moves_its_value_and_opens_nothing():
    dictionary = NEC(budget=4, rate=0.25)
    dictionary.write(np.eye(2)[[0, 1, 0]], [[0.0], [5.0], [4.0]])
    assert len(dictionary) == 2
    assert dictionary.read(np.eye(2)).tolist() == [[1.0], [5.0]]


def test_the_least_recently_used_leaves():
    dictionary = NEC(budget=2, k=1)
    ids = dictionary.write(np.eye(3)[[0, 1, 0, 2]], [[1.0], [2.0], [1.0], [3.0]])
    assert ids.tolist() == [0, 1, 0, 1]
    assert dictionary.read(np.eye(3)[[0, 2]]).tolist() == [[1.0], [3.0]]


def test_a_slot_near_a_written_key_counts_as_used():
    dictionary = NEC(budget=3, k=1)
    near_first = [0.99, 0.1, 0.0, 0.0]
    keys = [*np.eye(4)[:2], near_first, np.eye(4)[3]]
    assert dictionary.write(keys, np.ones((4, 1))).tolist() == [0, 1, 2, 1]


def test_a_neighbour_weighs_by_its_inverse_distance():
    dictionary = NEC(budget=2, k=2, delta=0.5)
    dictionary.write(np.eye(2), [[1.0], [0.0]])
    # Squared distances 0 and 2, so weights 2 and .4.
    assert dictionary.read([[1.0, 0.0]])[0, 0] == pytest.approx(2 / 2.4)
