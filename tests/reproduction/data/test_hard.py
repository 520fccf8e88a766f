import numpy as np
import pytest

from reproduction.data import RecallTask
from reproduction.data.hard import alike, drifting, mislabelled, ordinals, rebound

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
def test_numbers_that_draw_no_stream_are_refused(rng, draw, reason):
    with pytest.raises(ValueError, match=reason):
        draw(rng)
