import tracemalloc

import numpy as np
import pytest

from reproduction.baselines import EMLLM, Attention
from reproduction.baselines.emllm import surprise


def stream(*items):
    """One-hot keys, and the item as the value."""
    return np.eye(8)[list(items)], np.array(items, float)[:, None]


def test_a_surprising_token_begins_a_block():
    memory = EMLLM(gamma=1.0, representatives=1)
    memory.write(*stream(0, 0, 0, 0, 1, 1, 1, 2))
    assert memory.borders().tolist() == [0, 4, 7]


def test_a_block_is_no_shorter_than_its_representatives():
    memory = EMLLM(representatives=4)
    memory.write(*stream(0, 0, 1, 2, 2, 2, 3))
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
    memory.write(*stream(0, 0, 1, 1, 2, 2, 3, 3, 4, 4))
    assert memory.borders().tolist() == [0, 2, 4, 6, 8]
    # Block 0 and its one neighbour, 1, and the open block, 4.
    assert memory.read(np.eye(8)[:1])[0, 0] == pytest.approx(10 / 6, abs=0.02)


def test_all_blocks_are_full_attention(rng):
    keys, values = rng.standard_normal((50, 4)), rng.standard_normal((50, 2))
    memory, attention = EMLLM(reads=50, representatives=3), Attention()
    memory.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(memory.read(keys), attention.read(keys))


@pytest.mark.parametrize(
    "wrong", [{"gamma": np.inf}, {"window": 0}, {"reads": 0}, {"representatives": 0}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        EMLLM(**wrong)
