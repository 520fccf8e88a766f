"""Section 2 of the paper by hand: apple, sky and grass."""

import numpy as np
import pytest

from distinctkv import Concentration, Merge, Rule
from distinctkv.rule import MAX_USE_WEIGHT, novelty, read, unit

APPLE, SKY, GRASS = np.eye(3, dtype=np.float32)
STREAM = [SKY, APPLE, GRASS, APPLE, SKY, GRASS]


def test_three_facts_told_twice_open_three_slots():
    rule = Rule(Concentration.fixed(tau=0.5))
    assert [rule.write(key) for key in STREAM] == [0, 1, 2, 1, 0, 2]


def test_the_query_apple_reads_red():
    red, blue, green = np.eye(3)
    rule = Rule(Concentration.fixed(tau=0.5))
    for key, colour in zip(STREAM, [blue, red, green, red, blue, green], strict=True):
        rule.write(key, colour)
    colours = np.stack([slot.value for slot in rule.slots])
    assert read(APPLE, rule.keys, colours, theta=0.05).argmax() == 0


def test_the_first_token_opens_whatever_the_threshold():
    assert Rule(Concentration.fixed(tau=2.0)).write(APPLE) == 0


def test_at_the_largest_tau_everything_is_one_slot():
    rule = Rule(Concentration.fixed(tau=2.0))
    assert [rule.write(key) for key in (APPLE, -APPLE, SKY)] == [0, 0, 0]


def test_at_tau_zero_only_identical_keys_merge():
    rule = Rule(Concentration.fixed(tau=0.0))
    close = unit(APPLE + 1e-4 * SKY)[0].astype(np.float32)
    assert [rule.write(key) for key in (APPLE, close, APPLE, close)] == [0, 1, 0, 1]


def test_a_novelty_equal_to_tau_merges():
    rule = Rule(Concentration.fixed(tau=1.0))
    assert [rule.write(key) for key in (APPLE, SKY)] == [0, 0]


def test_novelty_is_one_minus_the_cosine(rng):
    a, b = unit(rng.standard_normal((2, 8)))
    assert novelty(a, b[None])[0] == pytest.approx(1 - a @ b)


def test_novelty_is_the_squared_distance_when_asked():
    assert novelty(np.array([3.0, 4.0]), np.zeros((1, 2)), "euclidean") == (25.0, 0)


def test_the_oldest_slot_wins_a_match():
    assert novelty(GRASS, np.stack([APPLE, SKY]))[1] == 0


def test_the_temperature_is_a_moving_average_of_openings():
    rule = Rule(Concentration(tau=0.5, rate=0.5))
    heat = []
    for key in (APPLE, SKY, APPLE):
        rule.write(key)
        heat.append(rule.temperature)
    assert heat == [0.5, 0.75, 0.375]


def test_the_budget_rises_with_the_temperature():
    rule = Rule(Concentration(tau=0.5, base=2, gain=4, rate=0.5))
    rule.write(APPLE)
    assert rule.budget == 4.0


def test_the_least_used_slot_is_evicted():
    rule = Rule(Concentration.fixed(0.5, budget=2))
    for key in (APPLE, SKY, APPLE, GRASS):
        rule.write(key)
    assert [slot.id for slot in rule.slots] == [0, 2]


def test_a_slot_is_not_evicted_in_the_step_that_opened_it():
    rule = Rule(Concentration.fixed(0.5, budget=1))
    assert [rule.write(key) for key in (APPLE, APPLE, SKY)] == [0, 0, 1]
    assert [slot.id for slot in rule.slots] == [1]


def test_of_slots_used_alike_the_longest_idle_is_evicted():
    rule = Rule(Concentration.fixed(0.5, budget=2, decay=1.0))
    for key in (APPLE, SKY, GRASS):
        rule.write(key)
    assert [slot.id for slot in rule.slots] == [1, 2]


def test_an_id_is_never_used_again():
    rule = Rule(Concentration.fixed(0.5, budget=1))
    assert [rule.write(key) for key in (APPLE, SKY, APPLE, SKY)] == [0, 1, 2, 3]


def test_usage_decays_with_every_token():
    rule = Rule(Concentration.fixed(0.5, decay=0.5))
    for key in (APPLE, SKY, SKY):
        rule.write(key)
    assert [slot.usage / rule.use_weight for slot in rule.slots] == [0.25, 1.5]


def test_usage_outlives_the_range_of_a_float():
    rule = Rule(Concentration.fixed(0.5, decay=1e-6))
    for _ in range(200):
        rule.write(APPLE)
    assert 0 < rule.slots[0].usage < np.inf
    assert rule.use_weight <= MAX_USE_WEIGHT


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_mean_key_is_the_mean_of_its_tokens(rng, metric):
    keys = unit(rng.standard_normal(6) + 0.2 * rng.standard_normal((9, 6)))
    rule = Rule(Concentration.fixed(0.9), Merge(key="mean"), metric)
    for key in keys.astype(np.float32):
        rule.write(key)
    mean = keys.mean(axis=0)
    want = unit(mean)[0] if metric == "cosine" else mean
    assert np.allclose(rule.slots[0].key, want, atol=1e-6)


def test_an_ema_key_goes_part_of_the_way():
    rule = Rule(Concentration.fixed(20.0), Merge(key="ema", pace=0.25), "euclidean")
    rule.write(np.float32([0.0, 0.0]))
    rule.write(np.float32([4.0, 0.0]))
    assert rule.slots[0].key.tolist() == [1.0, 0.0]


def test_opposite_keys_leave_a_mean_key_where_it_is():
    rule = Rule(Concentration.fixed(2.0), Merge(key="mean"))
    rule.write(APPLE)
    rule.write(-APPLE)
    assert np.array_equal(rule.slots[0].key, APPLE)


@pytest.mark.parametrize(("policy", "want"), [("first", 7), ("last", 9), ("counts", {7: 2, 9: 1})])
def test_a_repeat_binds_its_label_as_the_policy_says(policy, want):
    rule = Rule(Concentration.fixed(0.5), Merge(value=policy))
    for label in (7, 7, 9):
        rule.write(APPLE, label)
    assert rule.slots[0].value == want


def test_unit_rows_survive_the_ends_of_the_float_range():
    rows = unit(np.array([[1e-320, 0.0], [1e308, 1e308], [3.0, 4.0]]))
    assert np.allclose(rows, [[1, 0], [0.5**0.5, 0.5**0.5], [0.6, 0.8]])


@pytest.mark.parametrize("width", [1, 3, 64, 4096, 4097, 9000])
def test_a_unit_row_is_the_same_wherever_it_stands(rng, width):
    rows = rng.standard_normal((33, width))
    assert np.array_equal(unit(rows), np.concatenate([unit(row) for row in rows]))
