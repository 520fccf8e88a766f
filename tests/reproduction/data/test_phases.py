import numpy as np
import pytest

from reproduction.data import PhasedTask, RecallTask

TASK = PhasedTask((RecallTask(n_items=2, repeats=3), RecallTask(n_items=5, repeats=2)) * 2)


def test_a_phase_is_as_long_as_its_items_ask(rng):
    assert [len(phase.keys) for phase in TASK.draw(rng)] == [6, 10, 6, 10]
    assert TASK.lengths == (6, 10, 6, 10)


def test_every_item_of_a_phase_is_asked_for_once(rng):
    for phase in TASK.draw(rng):
        nearest = phase.items[(phase.queries @ phase.keys.T).argmax(axis=1)]
        np.testing.assert_array_equal(np.sort(nearest), np.unique(phase.items))


def test_no_item_comes_back_in_another_phase(rng):
    first, _, third, _ = TASK.draw(rng)
    assert (first.keys @ third.keys.T).max() < 0.9


def test_a_stream_has_a_phase():
    with pytest.raises(ValueError, match="at least 1 phase"):
        PhasedTask(())


def test_one_memory_can_hold_all_phases():
    with pytest.raises(ValueError, match="share width and n_classes"):
        PhasedTask((RecallTask(width=32), RecallTask(width=64)))
