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


@pytest.mark.parametrize(("n_tokens", "slots"), [(16, 16), (64, 32), (256, 64)])
def test_slots_grow_with_the_root_of_the_stream(rng, n_tokens, slots):
    kvm = KVM(factor=4, chunk=16)
    kvm.write(rng.standard_normal((n_tokens, 8)), np.ones((n_tokens, 1)))
    assert len(kvm) == slots


def test_the_count_is_the_same_when_all_tokens_are():
    kvm = KVM(factor=4, chunk=16)
    kvm.write(np.ones((64, 3)), np.ones((64, 1)))
    assert len(kvm) == 32


def test_a_slot_answers_with_the_mean_of_what_was_summed():
    kvm = KVM(factor=1, chunk=2)
    kvm.write(np.eye(2)[[0, 1, 0, 1]], [[1.0], [2.0], [3.0], [6.0]])
    np.testing.assert_allclose(kvm.read(np.eye(2)), [[2.0], [4.0]], atol=1e-5)


def test_the_length_of_a_sum_gives_a_slot_no_weight():
    kvm = KVM(factor=1, chunk=2, theta=1.0)
    kvm.write(np.eye(2)[[0, 1, 0, 0]], [[1.0], [0.0], [1.0], [1.0]])
    assert kvm.read([[1.0, 1.0]])[0, 0] == pytest.approx(0.5)


def test_keys_that_cancel_leave_a_slot_that_can_be_read():
    kvm = KVM(factor=0.1, chunk=1)
    kvm.write([[1.0, 0.0], [-1.0, 0.0]], [[1.0], [3.0]])
    assert kvm.read([[1.0, 0.0]]).tolist() == [[2.0]]


@pytest.mark.parametrize(("n_tokens", "slots"), [(64, 32), (192, 48), (640, 58)])
def test_the_number_of_slots_saturates(rng, n_tokens, slots):
    ovq = OVQ(limit=64, chunk=16)
    ovq.write(rng.standard_normal((n_tokens, 8)), np.ones((n_tokens, 1)))
    assert len(ovq) == slots


def test_a_slot_is_the_running_mean_of_its_tokens():
    ovq = OVQ(limit=1, chunk=3)
    ovq.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[3.0], [6.0], [9.0]])
    assert ovq.read([[0.0, 1.0]]).tolist() == [[6.0]]


def test_a_slot_weighs_as_all_its_tokens():
    ovq = OVQ(limit=4, chunk=4, theta=1.0)
    ovq.write(np.eye(2)[[0, 1, 0, 0]], [[1.0], [0.0], [1.0], [1.0]])
    assert ovq.read([[1.0, 1.0]])[0, 0] == pytest.approx(0.75)
