import tracemalloc

import numpy as np
import pytest

from reproduction.baselines import (
    EMLLM,
    KNN,
    Attention,
    Landmark,
    Memorizing,
    Recency,
    Reformer,
    Routing,
)
from reproduction.baselines.sparse_attention import surprise
from reproduction.data import RecallTask


def test_opposite_keys_never_share_a_bucket():
    reformer = Reformer(buckets=2, rounds=8, theta=100.0)
    reformer.write([[1.0, 0.0], [-1.0, 0.0]], [[1.0], [3.0]])
    assert reformer.read([[1.0, 0.0]]).tolist() == [[1.0]]


def test_a_query_that_meets_no_token_is_answered_with_zeros():
    reformer = Reformer(buckets=2, rounds=1)
    reformer.write([[1.0, 0.0]], [[1.0]])
    assert reformer.read([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [[1.0], [0.0]]


def test_enough_rounds_are_full_attention(rng):
    keys, values = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    reformer, attention = Reformer(buckets=2, rounds=200, theta=1.0), Attention(theta=1.0)
    halves = keys * np.sign(keys[:, :1])
    reformer.write(halves, values)
    attention.write(halves, values)
    np.testing.assert_allclose(reformer.read(halves), attention.read(halves))


def test_the_seed_decides(rng, seed):
    keys, values = rng.standard_normal((30, 8)), rng.standard_normal((30, 2))
    answers = []
    for each in (seed, seed, seed + 1):
        reformer = Reformer(rounds=1, seed=each, theta=1.0)
        reformer.write(keys, values)
        answers.append(reformer.read(keys))
    assert (answers[0] == answers[1]).all()
    assert (answers[0] != answers[2]).any()


KEYS = [[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]]


VALUES = [[1.0], [2.0], [3.0], [4.0]]


def test_a_query_reads_its_group_alone():
    routing = Routing(groups=2, reads=1, theta=100.0)
    routing.write(KEYS, VALUES)
    np.testing.assert_allclose(routing.read(np.eye(2)), [[2.0], [3.0]], atol=0.01)


def test_all_groups_are_full_attention(rng):
    keys, values = rng.standard_normal((30, 5)), rng.standard_normal((30, 2))
    routing, attention = Routing(groups=4, reads=4), Attention()
    routing.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(routing.read(keys), attention.read(keys))


def test_a_group_follows_its_tokens():
    routing = Routing(groups=2, reads=1, theta=100.0)
    routing.write([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.6, 0.8, 0.0]], [[1.0], [9.0], [3.0]])
    assert routing.read([[0.0, 1.0, 0.0]])[0, 0] == pytest.approx(2.0, abs=0.01)


def test_keys_that_cancel_leave_a_group_that_can_be_read():
    routing = Routing(groups=1, theta=100.0)
    routing.write([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [[1.0], [3.0], [5.0]])
    assert routing.read([[0.0, 1.0]])[0, 0] == pytest.approx(3.0, abs=0.02)


def test_enough_blocks_are_full_attention(rng):
    keys, values = rng.standard_normal((23, 6)), rng.standard_normal((23, 3))
    blocks, attention = Landmark(block=5, k=4), Attention()
    blocks.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(blocks.read(keys), attention.read(keys), atol=1e-12)


def test_a_query_reads_the_block_most_like_it_and_no_other():
    blocks = Landmark(block=2, k=1)
    blocks.write(np.eye(4)[[0, 1, 2, 3]], [[1.0], [2.0], [3.0], [4.0]])
    assert blocks.read([[0.0, 0.0, 1.0, 0.0]])[0, 0] == pytest.approx(3.0)
    assert blocks.read([[1.0, 1.0, 0.9, 0.9]])[0, 0] == pytest.approx(1.5)


def test_the_block_being_filled_is_always_read():
    blocks = Landmark(block=2, k=1)
    blocks.write(np.eye(3)[[0, 0, 1, 1, 2]], [[1.0], [1.0], [2.0], [2.0], [3.0]])
    assert blocks.read(np.eye(3)[2:])[0, 0] == pytest.approx(3.0)


def test_short_blocks_find_more_for_as_many_tokens_read(seed):
    recall = {8: [], 64: []}
    for episode in (RecallTask().draw(np.random.default_rng((seed, i)), 16) for i in range(40)):
        for block, right in recall.items():
            memory = Landmark(block, k=64 // block)
            memory.write(episode.keys, episode.values)
            right.append((memory.read(episode.queries).argmax(axis=1) == episode.answers).mean())
    assert np.mean(recall[8]) > 0.98 > 0.95 > np.mean(recall[64])


def test_one_neighbour_of_all_tokens_is_knn(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    queue, knn = Memorizing(budget=20, k=1), KNN(k=1)
    queue.write(keys, values)
    knn.write(keys, values)
    np.testing.assert_allclose(queue.read(-keys), knn.read(-keys))


def test_all_neighbours_are_a_sliding_window(rng):
    keys, values = rng.standard_normal((20, 4)), rng.standard_normal((20, 2))
    queue, window = Memorizing(budget=6, k=6), Recency(budget=6)
    queue.write(keys, values)
    window.write(keys, values)
    np.testing.assert_allclose(queue.read(keys), window.read(keys))


def emllm_stream(*items):
    """One-hot keys, and the item as the value."""
    return np.eye(8)[list(items)], np.array(items, float)[:, None]


def test_a_surprising_token_begins_a_block():
    memory = EMLLM(gamma=1.0, representatives=1)
    memory.write(*emllm_stream(0, 0, 0, 0, 1, 1, 1, 2))
    assert memory.borders().tolist() == [0, 4, 7]


def test_a_block_is_no_shorter_than_its_representatives():
    memory = EMLLM(representatives=4)
    memory.write(*emllm_stream(0, 0, 1, 2, 2, 2, 3))
    assert memory.borders().tolist() == [0, 6]


def test_a_block_without_surprise_ends_at_128_tokens():
    memory = EMLLM()
    memory.write(np.ones((300, 2)), np.ones((300, 1)))
    assert memory.borders().tolist() == [0, 128, 256]


def test_surprise_is_the_distance_from_all_tokens_before():
    keys = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]], np.float32)
    np.testing.assert_allclose(surprise(keys, start=1), [0.2, 0.04], atol=1e-6)


def test_a_long_chunk_has_no_table_of_all_pairs(rng):
    keys, memory = rng.standard_normal((2000, 4)), EMLLM()
    tracemalloc.start()
    memory.write(keys, np.ones((2000, 1)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2000**2


def test_repeats_surprise_nobody(rng):
    memory = EMLLM(representatives=1)
    kinds = np.concatenate([np.repeat([0, 1], 10), rng.integers(0, 2, 40)])
    memory.write(rng.standard_normal((2, 16))[kinds], np.ones((60, 1)))
    assert memory.borders().tolist() == [0, 10]


def test_a_query_reads_its_block_the_neighbours_and_the_open_one():
    memory = EMLLM(representatives=1, theta=100.0)
    memory.write(*emllm_stream(0, 0, 1, 1, 2, 2, 3, 3, 4, 4))
    assert memory.borders().tolist() == [0, 2, 4, 6, 8]
    # Block 0 and its one neighbour, 1, and the open block, 4.
    assert memory.read(np.eye(8)[:1])[0, 0] == pytest.approx(10 / 6, abs=0.02)


def test_all_blocks_are_full_attention(rng):
    keys, values = rng.standard_normal((50, 4)), rng.standard_normal((50, 2))
    memory, attention = EMLLM(reads=50, representatives=3), Attention()
    memory.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(memory.read(keys), attention.read(keys))
