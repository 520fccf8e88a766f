import numpy as np
import pytest

from reproduction.baselines import Attention, Routing

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


def test_every_token_is_kept():
    routing = Routing(groups=2)
    routing.write(KEYS, VALUES)
    assert (len(routing), routing.nbytes) == (4, 4 * 4 * 3 + 4 * 8 + 2 * 4 * 2)


@pytest.mark.parametrize("wrong", [{"groups": 0}, {"reads": 0}, {"theta": 0.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Routing(**wrong)
