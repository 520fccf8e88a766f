import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.baselines import Delta, GatedDelta


@pytest.mark.parametrize("decay", [1.0, 0.97, 0.01])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_closed_form_agrees_with_the_plain_loop(rng, rate, decay):
    keys, values = unit(rng.standard_normal((150, 6))), rng.standard_normal((150, 3))
    state, expected = GatedDelta(rate, decay), np.zeros((6, 3))
    state.write(keys, values)
    for key, value in zip(keys, values, strict=True):
        expected *= decay
        expected += rate * np.outer(key, value - key @ expected)
    np.testing.assert_allclose(state.read(np.eye(6)), expected, atol=1e-5)


def test_at_a_rate_of_one_the_last_value_counts():
    state = Delta(rate=1.0)
    state.write([[0.6, 0.8]] * 3, [[1.0], [2.0], [3.0]])
    np.testing.assert_allclose(state.read([[0.6, 0.8]]), [[3.0]], rtol=1e-6)


def test_a_smaller_rate_goes_a_part_of_the_way():
    state = Delta(rate=0.25)
    state.write([[1.0, 0.0]] * 2, [[16.0]] * 2)
    np.testing.assert_allclose(state.read([[1.0, 0.0]]), [[7.0]])


def test_what_is_known_already_changes_nothing(rng):
    state = Delta(rate=1.0)
    state.write(np.eye(4), rng.standard_normal((4, 3)))
    before = state.read(np.eye(4))
    state.write(np.eye(4), before)
    np.testing.assert_allclose(state.read(np.eye(4)), before, atol=1e-6)


def test_an_overwrite_leaves_other_directions_alone():
    state = Delta(rate=1.0)
    state.write(np.eye(3)[[0, 1, 1]], [[1.0], [2.0], [5.0]])
    np.testing.assert_allclose(state.read(np.eye(3)), [[1.0], [5.0], [0.0]], atol=1e-6)


def test_without_decay_the_gate_is_open(rng):
    keys, values = rng.standard_normal((70, 6)), rng.standard_normal((70, 3))
    gated, plain = GatedDelta(rate=0.2, decay=1.0), Delta(rate=0.2)
    gated.write(keys, values)
    plain.write(keys, values)
    np.testing.assert_array_equal(gated.read(keys), plain.read(keys))


def test_decay_forgets_what_is_not_seen_again():
    state = GatedDelta(rate=1.0, decay=0.5)
    state.write(np.eye(2)[[0, 1, 1, 1]], [[16.0], [1.0], [1.0], [1.0]])
    np.testing.assert_allclose(state.read(np.eye(2)), [[2.0], [1.0]])


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"rate": 1.5}, {"decay": 0.0}, {"decay": 2.0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\]"):
        GatedDelta(**wrong)
