import numpy as np
import pytest

from reproduction.baselines import Recency, SnapKV


def plain(keys, budget, window, theta):
    """Places kept: each token votes once, and the votes of the last window count."""
    kept, votes = [], []
    for t, key in enumerate(keys):
        kept.append(t)
        weights = np.exp(keys[kept] @ key / theta)
        votes.append(dict(zip(kept, weights / weights.sum(), strict=True)))
        if len(kept) > budget:
            score = [sum(v.get(place, 0.0) for v in votes[-window:]) for place in kept[:-window]]
            del kept[int(np.argmin(score))]
    return kept


@pytest.mark.parametrize("window", [1, 4, 9])
def test_it_keeps_what_the_plain_loop_keeps(rng, window):
    keys = rng.standard_normal((120, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    voted = SnapKV(budget=10, window=window, score_theta=0.3)
    voted.write(keys, np.arange(120.0)[:, None])
    assert voted._values[:, 0].tolist() == plain(keys, 10, window, 0.3)


def test_a_window_of_the_whole_budget_is_a_sliding_window(rng):
    keys, values = rng.standard_normal((90, 6)), rng.standard_normal((90, 3))
    voted, recency = SnapKV(budget=9, window=9), Recency(budget=9)
    voted.write(keys, values)
    recency.write(keys, values)
    np.testing.assert_array_equal(voted.read(keys), recency.read(keys))


def test_what_the_window_attends_to_stays():
    voted = SnapKV(budget=3, window=2)
    voted.write(np.eye(4)[[0, 1, 2, 0, 0]], np.arange(5.0)[:, None])
    assert voted._values[:, 0].tolist() == [0.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0},
        {"budget": 8, "window": 0},
        {"budget": 8, "window": 9},
        {"budget": 64, "theta": 0},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        SnapKV(**wrong)
