import numpy as np
import pytest

from reproduction.baselines import OVQ


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


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"chunk": 0}, {"theta": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        OVQ(**wrong)
