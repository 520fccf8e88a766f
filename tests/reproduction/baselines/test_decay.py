import numpy as np

from reproduction.baselines import DecayedSuperposition, Superposition


def test_the_closed_form_agrees_with_the_plain_loop(rng):
    keys, values = rng.standard_normal((150, 6)), rng.standard_normal((150, 3))
    state, expected = DecayedSuperposition(decay=0.97), np.zeros((6, 3))
    state.write(keys, values)
    for key, value in zip(keys, values, strict=True):
        expected = 0.97 * expected + np.outer(key / np.linalg.norm(key), value)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_without_decay_it_is_the_plain_sum(rng):
    keys, values = rng.standard_normal((90, 6)), rng.standard_normal((90, 3))
    decayed, plain = DecayedSuperposition(decay=1.0), Superposition()
    decayed.write(keys, values)
    plain.write(keys, values)
    np.testing.assert_allclose(decayed.read(keys), plain.read(keys), atol=1e-5)


def test_of_two_values_for_a_key_the_later_weighs_more():
    state = DecayedSuperposition(decay=0.9)
    state.write([[1.0, 0.0]] * 2, np.eye(2))
    np.testing.assert_allclose(state.read([[1.0, 0.0]]), [[0.9, 1.0]], rtol=1e-6)


def test_what_is_not_seen_again_fades():
    state = DecayedSuperposition(decay=0.9)
    state.write([[1.0, 0.0]] + [[0.0, 1.0]] * 100, np.ones((101, 1)))
    assert state.read([[1.0, 0.0]])[0, 0] < 1e-4
