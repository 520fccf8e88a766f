from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.policy import Merge
from reproduction.baselines import Attention
from reproduction.data import RecallTask
from reproduction.result import Measure, Result
from reproduction.studies import stress
from reproduction.studies.runner import Scale
from reproduction.studies.stress import ALL, CONDITIONS, PLAIN, SAFE, Condition

TINY = Scale("tiny", 0.01)
FEW = partial(RecallTask(n_items=8, repeats=2).draw, n_queries=8)


@pytest.fixture(scope="module")
def steps():
    """Steps done and steps in all, as the study goes on."""
    return []


@pytest.fixture(scope="module")
def tiny(seed, steps):
    """The study with few items where it has many."""
    few = [replace(s, streams=dict.fromkeys(s.streams, FEW)) if s.heavy else s for s in CONDITIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stress, "CONDITIONS", tuple(few))
        return stress.run((seed, seed + 1), TINY, lambda *step: steps.append(step))


@pytest.fixture(scope="module")
def found(tiny):
    """Mean by table, row and measure."""
    return {
        (row.table, row.name, name): measure.mean
        for row in tiny.rows
        for name, measure in row.measures.items()
    }


def test_every_stream_meets_every_setting(tiny):
    for condition in CONDITIONS:
        names = {
            f"{condition.label(n)}, {s}" for n in condition.streams for s in condition.settings
        }
        assert {row.name for row in tiny.tables[condition.name]} == names


def test_every_condition_begins_with_the_plain_setting_or_has_it():
    assert all(PLAIN in condition.settings for condition in CONDITIONS)


def test_one_setting_of_each_stream_stands_out_and_it_is_never_the_yardstick(tiny):
    for condition in CONDITIONS:
        chosen = [row for row in tiny.tables[condition.name] if row.role == "cache"]
        assert len(chosen) == len(condition.streams)
        assert not any(row.name.endswith((SAFE, ALL)) for row in chosen)


def test_keys_that_are_alike_break_the_plain_rule_and_centring_mends_it(found):
    assert found["alike", "cosine 0.8, plain", "recall"] < 0.5
    assert found["alike", "cosine 0.8, centred", "recall"] > 0.98


def test_a_key_that_moves_follows_drift(found):
    assert found["drift", "150 degrees, plain", "slots/item"] > 3
    assert found["drift", "150 degrees, ema key, pace .3", "slots/item"] < 1.1


def test_only_the_last_value_is_right_after_a_key_is_bound_again(found):
    assert found["rebound", "2 of 5 new, last value", "recall"] > 0.98
    assert found["rebound", "2 of 5 new, counts", "recall"] < 0.1


def test_counts_outvote_wrong_values(found):
    counts = found["mislabelled", "0.2 wrong, counts", "recall"]
    assert counts > found["mislabelled", "0.2 wrong, last value", "recall"]


def test_too_large_a_threshold_loses_items(found):
    assert found["tau", "noise 0.1, tau .9", "slots/item"] < 0.5


@pytest.mark.parametrize("condition", CONDITIONS[:2], ids=lambda condition: condition.name)
def test_the_same_seed_gives_the_same_numbers_but_for_the_speed(seed, condition):
    one, other = (stress.measure(condition, condition.hardest, seed, 1) for _ in range(2))
    assert [score[:3] for score in one.values()] == [score[:3] for score in other.values()]


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_nothing_here_is_claimed_of_the_paper(tiny):
    assert tiny.claims == ()


def test_progress_counts_to_the_end(tiny, steps):
    n_streams = sum(len(condition.streams) for condition in CONDITIONS)
    assert steps == [(step, 2 * n_streams) for step in range(1, 2 * n_streams + 1)]


@pytest.mark.parametrize("memory", [Attention(), Cache(Concentration.fixed(0.3))])
def test_a_trial_tells_recall_slots_bytes_and_speed(rng, memory):
    recall, slots, n_bytes, speed = stress.trial(memory, FEW(rng))
    assert (recall, slots, n_bytes) == (1.0, len(memory) / 8, memory.nbytes)
    assert speed > 0


def test_counts_are_given_labels(rng):
    cache = Cache(Concentration.fixed(0.3), merge=Merge(value="counts"))
    assert stress.trial(cache, FEW(rng))[0] == 1.0
    np.testing.assert_array_equal(cache.slots.values.sum(axis=1), [2] * 8)


def recommended(**measured):
    """The recommendation, given the recall and the slots per item of each setting."""
    names = {"plain": PLAIN, "safe": SAFE, "all": ALL}
    found = {
        ("toy", 1.0, names.get(name, name)): {
            "recall": Measure(recall, 0.0, 2),
            "slots/item": Measure(slots, 0.0, 2),
        }
        for name, (recall, slots) in measured.items()
    }
    settings = {setting: None for _, _, setting in found}
    return stress.recommend(found, Condition("toy", "", "", {1.0: None}, settings), 1.0)


def test_the_fewest_slots_win_among_those_that_recall_the_most():
    assert recommended(plain=(1.0, 3.0), mean=(0.995, 1.2), ema=(0.5, 1.0)) == "mean"


def test_fewer_slots_than_items_are_no_saving():
    assert recommended(fine=(1.0, 1.0), coarse=(0.995, 0.97)) == "fine"


def test_of_equals_the_first_is_taken():
    assert recommended(plain=(1.0, 1.001), other=(1.0, 0.999)) == PLAIN


@pytest.mark.parametrize("other", ["safe", "all"])
def test_what_is_there_to_compare_with_is_never_recommended(other):
    assert recommended(plain=(0.9, 2.0), **{other: (1.0, 1.0)}) == PLAIN
