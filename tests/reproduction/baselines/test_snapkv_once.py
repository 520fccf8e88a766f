import numpy as np
import pytest

from reproduction.baselines import Attention, SnapKVOnce
from reproduction.data import RecallTask


def test_a_prompt_within_the_budget_is_read_whole(rng):
    keys, values = rng.standard_normal((20, 6)), rng.standard_normal((20, 3))
    prompt, attention = SnapKVOnce(budget=20, window=4), Attention()
    prompt.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_array_equal(prompt.read(keys), attention.read(keys))


def test_the_window_and_what_it_attends_to_are_read():
    prompt = SnapKVOnce(budget=4, window=2)
    prompt.write(np.eye(4)[[0, 1, 2, 3, 0, 2]], np.ones((6, 1)))
    assert prompt.chosen().tolist() == [0, 2, 4, 5]


@pytest.mark.parametrize(("window", "expected"), [(16, 0.32), (32, 0.46)])
def test_on_a_shuffled_stream_it_knows_little_but_its_window(seed, window, expected):
    right = []
    for episode in (RecallTask().draw(np.random.default_rng((seed, i)), 16) for i in range(100)):
        prompt = SnapKVOnce(budget=64, window=window)
        prompt.write(episode.keys, episode.values)
        right.append((prompt.read(episode.queries).argmax(axis=1) == episode.answers).mean())
    assert np.mean(right) == pytest.approx(expected, abs=0.04)


def test_a_window_fits_the_budget():
    with pytest.raises(ValueError, match="window must lie in"):
        SnapKVOnce(budget=8, window=9)
