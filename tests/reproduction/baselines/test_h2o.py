import numpy as np
import pytest

from reproduction.baselines import H2O, Recency
from reproduction.baselines.h2o import scan


def plain(keys, budget, theta, recent):
    """The paper of H2O in eight lines: (kept places, their scores)."""
    kept, scores = [], {}
    for t, key in enumerate(keys):
        kept.append(t)
        weights = np.exp(keys[kept] @ key / theta)
        for place, weight in zip(kept, weights / weights.sum(), strict=True):
            scores[place] = scores.get(place, 0.0) + weight
        if len(kept) > budget:
            kept.remove(min(kept[: len(kept) - recent], key=scores.__getitem__))
    return kept, [scores[place] for place in kept]


@pytest.mark.parametrize("recent", [0, 3, 6])
def test_the_scan_agrees_with_the_plain_loop(rng, recent):
    keys = rng.standard_normal((50, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    kept, scores, _ = scan(np.exp((keys @ keys.T - 1) / 0.2), np.empty(0), 6, recent)
    expected, expected_scores = plain(keys, 6, 0.2, recent)
    assert kept.tolist() == expected
    np.testing.assert_allclose(scores, expected_scores)


def test_what_is_attended_to_stays():
    heavy = H2O(budget=2, recent=0)
    heavy.write(np.eye(3)[[0, 0, 0, 1, 2]], [[1.0], [1.0], [1.0], [2.0], [3.0]])
    assert heavy.read(np.eye(3)[:1])[0, 0] == pytest.approx(1.0)


def test_all_recent_is_a_sliding_window(rng):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    heavy, window = H2O(budget=9, recent=9), Recency(budget=9)
    np.testing.assert_array_equal(heavy.write(keys, values), window.write(keys, values))
    np.testing.assert_array_equal(heavy.read(keys), window.read(keys))


def test_a_token_that_leaves_at_once_gets_no_id(rng):
    heavy = H2O(budget=1, recent=0, score_theta=5.0)
    ids = heavy.write(rng.standard_normal((30, 8)), np.ones((30, 1)))
    assert ids[0] == 0
    assert (ids[1:] == -1).any()


def test_half_the_budget_is_recent_unless_told():
    assert H2O(budget=64).recent == 32


@pytest.mark.parametrize(
    "wrong", [{"budget": 0}, {"budget": 4, "recent": 5}, {"budget": 4, "score_theta": 0.0}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        H2O(**wrong)
