"""The policy numbers: their meaning, their ends, and what is refused."""

from math import inf, nan

import pytest

from distinctkv import Cache, Concentration, Merge


def test_similar_is_the_other_way_to_say_tau():
    assert Concentration.similar(0.7).tau == pytest.approx(0.3)


@pytest.mark.parametrize(("similarity", "tau"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 2.0)])
def test_similar_honours_the_ends_of_its_range(similarity, tau):
    assert Concentration.similar(similarity).tau == tau


def test_fixed_is_unbounded_unless_told():
    assert not Concentration.fixed(0.5).bounded
    assert Concentration.fixed(0.5, budget=3).bounded


def test_surprise_has_a_budget_that_moves():
    policy = Concentration.surprise()
    assert policy.bounded
    assert policy.gain > 0


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ({"tau": -0.1}, "0 or more, got -0.1"),
        ({"tau": nan}, "tau must be a number, got nan"),
        ({"base": 0}, "at least 1 slot, got 0"),
        ({"base": -5}, "leave it out"),
        ({"base": nan}, "got nan"),
        ({"gain": -1}, "gain must be finite"),
        ({"gain": inf}, "gain must be finite"),
        ({"rate": 0}, "rate must lie in"),
        ({"rate": 1.5}, "rate must lie in"),
        ({"decay": 0}, "decay must lie in"),
        ({"decay": 1.01}, "decay must lie in"),
    ],
)
def test_a_number_without_meaning_is_refused(numbers, rule):
    with pytest.raises(ValueError, match=rule):
        Concentration(**numbers)


@pytest.mark.parametrize("tau", ["0.5", None, [0.5]])
def test_a_threshold_that_is_not_a_number_is_a_type_error(tau):
    with pytest.raises(TypeError):
        Concentration(tau=tau)


@pytest.mark.parametrize("similarity", [1.5, -1.01])
def test_a_similarity_beyond_a_cosine_is_refused(similarity):
    with pytest.raises(ValueError, match=r"in \[-1, 1\]"):
        Concentration.similar(similarity)


def test_a_cosine_threshold_above_two_is_refused_by_the_cache():
    with pytest.raises(ValueError, match="at most 2"):
        Cache(Concentration.fixed(2.5))
    Cache(Concentration.fixed(2.5), metric="euclidean")


@pytest.mark.parametrize(
    "words", [{"key": "median"}, {"value": "sum"}, {"pace": 0.0}, {"pace": nan}]
)
def test_an_unknown_merge_is_refused(words):
    with pytest.raises(ValueError, match="got"):
        Merge(**words)


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="got 'manhattan'"):
        Cache(metric="manhattan")


def test_policies_are_values():
    assert Concentration.fixed(0.5) == Concentration(tau=0.5)
    assert len({Concentration.fixed(0.5), Concentration.fixed(0.5)}) == 1
