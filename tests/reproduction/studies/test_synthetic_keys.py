import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.studies.runner import FULL, QUICK
from reproduction.studies.synthetic_keys import (
    BATCH,
    SyntheticKeys,
    correct_answers,
    most_common_label,
    used_seeds,
    with_one_label,
)
from tests.reproduction.studies.small_streams import routed, tailed


def test_a_stream_keeps_its_events_and_gets_keys(rng):
    events = tailed()
    episode = SyntheticKeys(events).draw(rng)
    assert (episode.items == events.items).all()
    assert (episode.values.argmax(axis=1) == events.labels).all()
    assert np.linalg.norm(episode.keys, axis=1) == pytest.approx(1)


def test_every_item_is_asked_for_once(rng):
    events = tailed()
    assert (SyntheticKeys(events).draw(rng).answers == np.arange(400) % 8).all()


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_occurrences_are_as_alike_as_the_noise_says(rng, noise):
    keys = SyntheticKeys(tailed(4000, 2), noise).draw(rng).keys
    same = keys[:1000] @ keys[1000:2000].T
    assert same[same > 0.5].mean() == pytest.approx(1 / (1 + noise**2), abs=0.02)


def test_the_commonest_label_is_that_of_most_events():
    assert most_common_label(routed()).tolist() == [1, 2]


def test_in_a_tie_the_first_label_wins():
    events = routed().head(4)
    assert most_common_label(events).tolist() == [0, 2]


def test_with_one_label_an_item_never_changes_it():
    events = with_one_label(routed())
    assert events.labels.tolist() == [1, 2, 1, 2, 1, 2]


def test_queries_are_read_in_batches_and_all_answered(rng):
    episode = SyntheticKeys(tailed()).draw(rng)
    right = correct_answers(Cache(Concentration.fixed(0.3)), episode)
    assert len(right) == 400 > BATCH
    assert right.all()


@pytest.mark.parametrize(
    ("given", "scale", "used"), [(10, QUICK, 5), (10, FULL, 10), (2, QUICK, 2)]
)
def test_a_quick_run_uses_five_seeds(given, scale, used):
    assert len(used_seeds(range(given), scale)) == used
