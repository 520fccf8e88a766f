import numpy as np
import pytest

from distinctkv.rule import unit
from reproduction.data import (
    PhasedTask,
    RecallTask,
    alike,
    drifting,
    mislabelled,
    occurrences,
    rebound,
    restaurant,
    zipf,
)
from reproduction.data.synthetic import ordinals


def test_every_item_comes_as_often_as_asked(rng):
    episode = RecallTask(n_items=5, repeats=3).draw(rng)
    np.testing.assert_array_equal(np.bincount(episode.items), [3] * 5)


def test_tokens_of_an_item_agree_on_its_class(rng):
    episode = RecallTask(n_items=5, repeats=3).draw(rng)
    for item in range(5):
        assert len(np.unique(episode.values[episode.items == item], axis=0)) == 1


def test_values_are_one_hot(rng):
    values = RecallTask(n_items=5, repeats=3).draw(rng).values
    assert set(np.unique(values)) == {0.0, 1.0}
    np.testing.assert_array_equal(values.sum(axis=1), 1.0)


def test_keys_and_queries_are_unit_rows(rng):
    episode = RecallTask().draw(rng, n_queries=9)
    for rows in (episode.keys, episode.queries):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)


def test_a_query_is_nearest_to_a_token_of_its_answer(rng):
    episode = RecallTask().draw(rng, n_queries=9)
    nearest = (episode.queries @ episode.keys.T).argmax(axis=1)
    np.testing.assert_array_equal(episode.values[nearest].argmax(axis=1), episode.answers)


def test_without_noise_repeats_are_identical(rng):
    episode = RecallTask(n_items=4, repeats=6, noise=0.0).draw(rng)
    assert len(np.unique(episode.keys, axis=0)) == 4


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_repeats_are_as_alike_as_the_noise_says(rng, noise):
    prototypes = unit(rng.standard_normal((4000, 64)))
    one, other = occurrences(rng, prototypes, noise), occurrences(rng, prototypes, noise)
    assert (one * other).sum(axis=1).mean() == pytest.approx(1 / (1 + noise**2), abs=0.01)


def test_the_same_generator_draws_the_same_episode(seed):
    one, other = (RecallTask().draw(np.random.default_rng(seed)) for _ in range(2))
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_array_equal(one.queries, other.queries)


@pytest.mark.parametrize("wrong", [{"n_items": 0}, {"repeats": 0}, {"noise": -0.1}, {"width": 0}])
def test_numbers_that_draw_no_stream_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        RecallTask(**wrong)


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


PLAIN = RecallTask(n_items=12, repeats=5, noise=0.0)


def classes(episode, item):
    """The classes of an item's tokens, in order."""
    return episode.values.argmax(axis=1)[episode.items == item].tolist()


@pytest.mark.parametrize("common", [0.0, 0.5, 0.8])
def test_items_are_as_alike_as_asked(rng, common):
    queries = alike(rng, RecallTask(n_items=200, width=256, noise=0.0), common).queries
    cosines = (queries @ queries.T)[np.triu_indices(200, 1)]
    assert cosines.mean() == pytest.approx(common, abs=0.05)


def test_an_item_that_drifts_ends_as_far_away_as_asked(rng):
    episode = drifting(rng, RecallTask(n_items=3, repeats=400, noise=0.0), degrees=60.0)
    for item in range(3):
        first = episode.keys[episode.items == item][0]
        assert first @ episode.queries[item] == pytest.approx(np.cos(np.radians(60)), abs=0.03)


def test_without_a_turn_nothing_drifts(rng):
    assert len(np.unique(drifting(rng, PLAIN, degrees=0.0).keys.round(12), axis=0)) == 12


def test_the_last_occurrences_carry_the_new_class_and_the_answer(rng):
    episode = rebound(rng, PLAIN, renewed=2)
    for item in range(12):
        old, new = classes(episode, item)[:3], classes(episode, item)[3:]
        assert set(old).isdisjoint(new)
        assert new == [episode.answers[item]] * 2


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: alike(rng, PLAIN, 0.5),
        lambda rng: drifting(rng, PLAIN, 90.0),
        lambda rng: rebound(rng, PLAIN, 2),
        lambda rng: mislabelled(rng, PLAIN, 0.2),
    ],
)
def test_every_item_comes_as_often_as_before_and_is_asked_once(rng, draw):
    episode = draw(rng)
    np.testing.assert_array_equal(np.bincount(episode.items), [5] * 12)
    assert episode.queries.shape == (12, PLAIN.width)
    assert episode.answers.shape == (12,)


def test_as_many_tokens_are_mislabelled_as_asked(rng):
    episode = mislabelled(rng, RecallTask(n_items=50, repeats=100), part=0.2)
    right = episode.values.argmax(axis=1) == episode.answers[episode.items]
    assert right.mean() == pytest.approx(0.8, abs=0.03)


def test_ordinals_count_what_came_before(rng):
    items = rng.integers(4, size=50)
    expected = [int((items[:i] == item).sum()) for i, item in enumerate(items)]
    np.testing.assert_array_equal(ordinals(items), expected)


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        (lambda rng: alike(rng, PLAIN, 1.0), "common must lie in"),
        (lambda rng: drifting(rng, PLAIN, -1.0), "degrees must be finite"),
        (lambda rng: rebound(rng, PLAIN, 5), "renewed must be 1 to 4"),
        (lambda rng: rebound(rng, RecallTask(n_classes=1), 2), "2 or more, got 1"),
        (lambda rng: mislabelled(rng, PLAIN, 1.5), "part must lie in"),
        (lambda rng: mislabelled(rng, RecallTask(n_classes=1), 0.5), "2 or more, got 1"),
    ],
)
def test_hard_settings_out_of_range_are_refused(rng, draw, reason):
    with pytest.raises(ValueError, match=reason):
        draw(rng)


def test_tables_are_numbered_as_they_open(rng):
    tables = restaurant(rng, 500, alpha=5.0)
    first = np.unique(tables, return_index=True)[1]
    assert tables[0] == 0
    assert (np.diff(first) > 0).all()


def test_a_restaurant_has_as_many_tables_as_the_law_says(rng):
    opened = [restaurant(rng, 1000, alpha=5.0).max() + 1 for _ in range(200)]
    expected = (5.0 / (5.0 + np.arange(1000))).sum()
    assert np.mean(opened) == pytest.approx(expected, abs=4 * np.std(opened) / np.sqrt(200))


def test_a_full_table_draws_guests(rng):
    shares = [np.bincount(restaurant(rng, 400, alpha=1.0))[0] / 400 for _ in range(300)]
    # The first table's part is Beta(1, 1), uniform, when alpha is 1.
    assert np.mean(shares) == pytest.approx(0.5, abs=0.07)
    assert np.std(shares) == pytest.approx(np.sqrt(1 / 12), abs=0.05)


def test_the_first_type_comes_twice_as_often_as_the_second(rng):
    counts = np.bincount(zipf(rng, 100_000, n_types=8))
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert len(counts) == 8


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf])
def test_a_restaurant_without_a_concentration_is_refused(rng, alpha):
    with pytest.raises(ValueError, match="alpha must be finite and above 0"):
        restaurant(rng, 10, alpha)


def test_no_types_are_refused(rng):
    with pytest.raises(ValueError, match="n_types must be at least 1"):
        zipf(rng, 10, n_types=0)
