import numpy as np
import pytest

from reproduction.baselines import Attention, Reformer


def test_opposite_keys_never_share_a_bucket():
    reformer = Reformer(buckets=2, rounds=8, theta=100.0)
    reformer.write([[1.0, 0.0], [-1.0, 0.0]], [[1.0], [3.0]])
    assert reformer.read([[1.0, 0.0]]).tolist() == [[1.0]]


def test_a_query_that_meets_no_token_is_answered_with_zeros():
    reformer = Reformer(buckets=2, rounds=1)
    reformer.write([[1.0, 0.0]], [[1.0]])
    assert reformer.read([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [[1.0], [0.0]]


def test_enough_rounds_are_full_attention(rng):
    keys, values = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    reformer, attention = Reformer(buckets=2, rounds=200, theta=1.0), Attention(theta=1.0)
    halves = keys * np.sign(keys[:, :1])
    reformer.write(halves, values)
    attention.write(halves, values)
    np.testing.assert_allclose(reformer.read(halves), attention.read(halves))


def test_the_seed_decides(rng, seed):
    keys, values = rng.standard_normal((30, 8)), rng.standard_normal((30, 2))
    answers = []
    for each in (seed, seed, seed + 1):
        reformer = Reformer(rounds=1, seed=each, theta=1.0)
        reformer.write(keys, values)
        answers.append(reformer.read(keys))
    assert (answers[0] == answers[1]).all()
    assert (answers[0] != answers[2]).any()


@pytest.mark.parametrize("wrong", [{"buckets": 3}, {"buckets": 0}, {"rounds": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Reformer(**wrong)
