from dataclasses import replace

import numpy as np
import pytest

from reproduction.baselines import Recency
from reproduction.data import RecallTask
from reproduction.studies.sweep import CACHE, Curve, Method, compare, every_item

TASK = RecallTask(n_items=4, repeats=2, n_classes=4, width=8)
WINDOW = Method("window", "Window", "B={}", Recency, (2, 8))


@pytest.fixture
def curve(seed):
    return compare((WINDOW,), every_item(TASK), (seed, seed + 1), n_episodes=3)["window"]


def bent(recall, slots):
    return Curve(CACHE, {"recall": np.array(recall)[:, None], "slots": np.array(slots)[:, None]})


def test_a_curve_has_a_number_for_each_size_and_seed(curve):
    assert {name: found.shape for name, found in curve.found.items()} == dict.fromkeys(
        ("recall", "slots", "bytes", "peak"), (2, 2)
    )


def test_a_window_over_the_whole_stream_recalls_all(curve):
    assert (curve.found["recall"][1] == 1).all()
    assert (curve.found["slots"][1] == TASK.n_tokens).all()


def test_every_memory_meets_the_same_streams(seed):
    twins = (WINDOW, replace(WINDOW, name="twin"))
    curves = compare(twins, every_item(TASK), (seed, seed + 1), n_episodes=3)
    first, second = (curve.found["recall"] for curve in curves.values())
    np.testing.assert_array_equal(first, second)


def test_progress_counts_to_the_end(seed):
    told = []
    compare((WINDOW,), every_item(TASK), (seed, seed + 1), 3, lambda *step: told.append(step))
    assert told == [(step, 12) for step in range(1, 13)]


def test_sizes_in_any_order_give_one_curve():
    assert bent([0.7, 0.5], [20.0, 10.0]).at(15) == pytest.approx(0.6)


def test_more_slots_never_recall_less():
    assert bent([0.5, 0.9, 0.7], [10.0, 20.0, 30.0]).at(30) == pytest.approx(0.9)


def test_a_row_names_its_size(curve):
    row = curve.row(("recall",), "points", 8)
    assert (row.setting, row.table, row.measures["recall"].mean) == ("B=8", "points", 1.0)


def test_a_line_carries_its_spread(curve):
    line = curve.series("slots")
    assert line.x == (2.0, 8.0)
    assert len(line.sd) == len(line.y) == 2


def test_a_curve_has_no_recall_below_its_smallest_size():
    curve = bent([0.5, 0.9], [10.0, 20.0])
    assert (curve.covers(9), curve.covers(10)) == (False, True)
    with pytest.raises(ValueError, match="no size of 9 slots"):
        curve.at(9)
