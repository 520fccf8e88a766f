import numpy as np
import pytest

from reproduction.baselines import (
    H2O,
    TOVA,
    Attention,
    KeyDiff,
    Recency,
    Redundancy,
    Sinks,
    SnapKV,
    SnapKVOnce,
)
from reproduction.baselines.token_eviction import scan
from reproduction.data import RecallTask


def test_the_window_reads_as_attention_over_its_last_tokens(rng):
    keys, values = rng.standard_normal((20, 6)), rng.standard_normal((20, 3))
    window, attention = Recency(budget=7), Attention()
    window.write(keys, values)
    attention.write(keys[-7:], values[-7:])
    np.testing.assert_array_equal(window.read(keys), attention.read(keys))


def test_the_first_and_the_last_tokens_are_read(rng):
    keys, values = rng.standard_normal((20, 6)), rng.standard_normal((20, 3))
    window, attention = Sinks(budget=7, sinks=2), Attention()
    window.write(keys, values)
    attention.write(keys[[0, 1, *range(15, 20)]], values[[0, 1, *range(15, 20)]])
    np.testing.assert_array_equal(window.read(keys), attention.read(keys))


def test_without_sinks_it_is_a_sliding_window(rng):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    window, recency = Sinks(budget=9, sinks=0), Recency(budget=9)
    window.write(keys, values)
    recency.write(keys, values)
    np.testing.assert_array_equal(window.read(keys), recency.read(keys))


def test_a_small_budget_leaves_room_for_the_last_token():
    assert [Sinks(budget).sinks for budget in (1, 3, 5)] == [0, 2, 4]


def h2o_by_hand(keys, budget, theta, recent):
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
    expected, expected_scores = h2o_by_hand(keys, 6, 0.2, recent)
    assert kept.tolist() == expected
    np.testing.assert_allclose(scores, expected_scores)


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


def snapkv_by_hand(keys, budget, window, theta):
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
def test_it_keeps_what_the_plain_loop_keeps_snapkv(rng, window):
    keys = rng.standard_normal((120, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    voted = SnapKV(budget=10, window=window, score_theta=0.3)
    voted.write(keys, np.arange(120.0)[:, None])
    assert voted._values[:, 0].tolist() == snapkv_by_hand(keys, 10, window, 0.3)


def test_a_window_of_the_whole_budget_is_a_sliding_window(rng):
    keys, values = rng.standard_normal((90, 6)), rng.standard_normal((90, 3))
    voted, recency = SnapKV(budget=9, window=9), Recency(budget=9)
    voted.write(keys, values)
    recency.write(keys, values)
    np.testing.assert_array_equal(voted.read(keys), recency.read(keys))


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


def tova_by_hand(keys, budget):
    """Places kept, one token at a time."""
    kept = []
    for t, key in enumerate(keys):
        kept.append(t)
        if len(kept) > budget:
            del kept[int((keys[kept] @ key).argmin())]
    return kept


def test_it_keeps_what_the_plain_loop_keeps_tova(rng):
    keys = rng.standard_normal((80, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    last = TOVA(budget=6)
    last.write(keys, np.arange(80.0)[:, None])
    assert last._values[:, 0].tolist() == tova_by_hand(keys, 6)


def test_of_equally_attended_tokens_the_oldest_leaves():
    last = TOVA(budget=2)
    last.write(np.eye(3), [[1.0], [2.0], [3.0]])
    assert last._values[:, 0].tolist() == [2.0, 3.0]


def keydiff_by_hand(keys, budget):
    """Places kept, one token at a time; the newest cannot leave."""
    kept = []
    for t in range(len(keys)):
        kept.append(t)
        if len(kept) > budget:
            del kept[int((keys[kept[:-1]] @ keys[kept].mean(axis=0)).argmax())]
    return kept


def test_it_keeps_what_the_plain_loop_keeps_keydiff(rng):
    keys = rng.standard_normal((80, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    spread = KeyDiff(budget=6)
    spread.write(keys, np.arange(80.0)[:, None])
    assert spread._values[:, 0].tolist() == keydiff_by_hand(keys, 6)


def test_the_newest_token_stays_for_its_step():
    spread = KeyDiff(budget=1)
    assert spread.write([[1.0, 0.0]] * 3, np.ones((3, 1))).tolist() == [0, 1, 2]


def redundancy_by_hand(keys, budget):
    """Places kept, by looking at all pairs at every step."""
    kept = []
    for t in range(len(keys)):
        kept.append(t)
        if len(kept) > budget:
            similar = keys[kept] @ keys[kept].T
            similar[np.tril_indices(len(kept))] = -np.inf
            del kept[int(similar.argmax()) // len(kept)]
    return kept


@pytest.mark.parametrize("budget", [1, 2, 7, 30])
@pytest.mark.parametrize("noise", [0.1, 1.0, 5.0])
def test_it_keeps_what_a_search_of_all_pairs_keeps(rng, budget, noise):
    episode = RecallTask(n_items=12, repeats=9, width=6, noise=noise).draw(rng)
    distinct = Redundancy(budget)
    distinct.write(episode.keys, np.arange(108.0)[:, None])
    assert distinct._values[:, 0].tolist() == redundancy_by_hand(episode.keys, budget)


def test_a_twin_that_has_left_is_forgotten():
    # Tokens 1 and 2 are alike, 0 a little like 1; with 1 gone, 0 is like nobody.
    keys = [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, -0.1], [0.0, 0.2, 1.0], [0.0, 0.0, 1.0]]
    distinct = Redundancy(budget=3)
    distinct.write(keys, np.arange(5.0)[:, None])
    assert distinct._values[:, 0].tolist() == [0.0, 2.0, 4.0]
