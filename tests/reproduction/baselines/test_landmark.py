import numpy as np
import pytest

from reproduction.baselines import Attention, Landmark
from reproduction.data import RecallTask


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


@pytest.mark.parametrize("wrong", [{"block": 0}, {"k": 0}, {"theta": -1.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        Landmark(**wrong)
