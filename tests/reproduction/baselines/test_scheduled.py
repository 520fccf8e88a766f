import numpy as np
import pytest

from reproduction.baselines import KVM, OVQ, Attention

BOTH = pytest.mark.parametrize("peer", [KVM, OVQ])


@BOTH
def test_an_unfinished_chunk_is_read_token_by_token(peer, rng):
    keys, values = rng.standard_normal((9, 4)), rng.standard_normal((9, 2))
    memory, attention = peer(chunk=10), Attention()
    memory.write(keys, values)
    attention.write(keys, values)
    assert len(memory) == 9
    np.testing.assert_allclose(memory.read(keys), attention.read(keys))


@BOTH
def test_a_finished_chunk_leaves_no_tail(peer):
    memory = peer(1, chunk=2)
    memory.write(np.eye(2)[[0, 1] * 4], np.ones((8, 1)))
    slots = len(memory)
    assert memory.nbytes == slots * (4 * 3 + 8)


@BOTH
def test_the_rest_of_a_chunk_joins_the_slots_most_like_it(peer):
    memory = peer(1, chunk=4)
    memory.write(np.eye(4), [[1.0], [2.0], [3.0], [4.0]])
    before = len(memory)
    memory.write(np.eye(4)[[0, 0, 0, 0]], [[5.0]] * 4)
    assert len(memory) == before


@BOTH
def test_the_most_novel_tokens_open_the_slots(peer):
    memory = peer(1.5 if peer is KVM else 6, chunk=2)
    memory.write(np.eye(4)[[0, 0]], [[1.0], [1.0]])
    memory.write(np.eye(4)[[0, 1]], [[1.0], [7.0]])
    assert memory.read(np.eye(4)[1:2])[0, 0] == pytest.approx(7.0, abs=1e-5)
