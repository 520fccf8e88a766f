import numpy as np
import pytest

from reproduction.baselines import KVM


@pytest.mark.parametrize(("n_tokens", "slots"), [(16, 16), (64, 32), (256, 64)])
def test_slots_grow_with_the_root_of_the_stream(rng, n_tokens, slots):
    kvm = KVM(factor=4, chunk=16)
    kvm.write(rng.standard_normal((n_tokens, 8)), np.ones((n_tokens, 1)))
    assert len(kvm) == slots


def test_the_count_is_the_same_when_all_tokens_are():
    kvm = KVM(factor=4, chunk=16)
    kvm.write(np.ones((64, 3)), np.ones((64, 1)))
    assert len(kvm) == 32


def test_the_first_chunk_becomes_slots_whole(rng):
    kvm = KVM(factor=1, chunk=9)
    kvm.write(rng.standard_normal((9, 4)), np.ones((9, 1)))
    assert len(kvm) == 9


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


@pytest.mark.parametrize("wrong", [{"factor": 0.0}, {"chunk": 0}, {"theta": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        KVM(**wrong)
