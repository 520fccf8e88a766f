import numpy as np

from reproduction.baselines import Superposition


def test_the_state_is_the_sum_of_outer_products(rng):
    keys, values = np.eye(4), rng.standard_normal((4, 3))
    state = Superposition()
    state.write(keys, values)
    np.testing.assert_allclose(state.read(keys), values, rtol=1e-6)


def test_repeats_add_up():
    state = Superposition()
    state.write([[1.0, 0.0]] * 3, [[2.0]] * 3)
    np.testing.assert_allclose(state.read([[1.0, 0.0]]), [[6.0]])


def test_a_longer_stream_costs_nothing_more(rng):
    state = Superposition()
    state.write(rng.standard_normal((10, 8)), np.ones((10, 4)))
    before = len(state), state.nbytes
    state.write(rng.standard_normal((1000, 8)), np.ones((1000, 4)))
    assert (len(state), state.nbytes) == before == (8, 8 * 4 * 4)


def test_no_token_has_a_slot_of_its_own():
    assert Superposition().write(np.eye(3), np.eye(3)).tolist() == [-1, -1, -1]
