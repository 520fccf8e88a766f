import numpy as np
import pytest

from reproduction.studies import halves


@pytest.mark.parametrize(("n_systems", "n_deals"), [(2, 2), (5, 10), (12, 924)])
def test_every_way_to_halve_comes_once(n_systems, n_deals):
    dealt = halves.halves(n_systems)
    assert dealt.shape == (n_deals, n_systems)
    assert len({tuple(one) for one in dealt.tolist()}) == n_deals
    assert (dealt.sum(axis=1) == n_systems // 2).all()


def test_of_very_many_ways_some_are_drawn(monkeypatch):
    monkeypatch.setattr(halves, "MOST", 50)
    dealt = halves.halves(10)
    assert dealt.shape == (50, 10)
    assert (dealt.sum(axis=1) == 5).all()
    assert 0.3 < dealt.mean(axis=0).min() <= dealt.mean(axis=0).max() < 0.7


def test_what_is_measured_was_not_looked_at():
    """The first setting is best on every half, and worthless on the one system beside it."""
    grid = np.array([[1.0, 0.0, 0.0], [0.9, 0.9, 0.9]])
    assert halves.left_out(grid) == pytest.approx([0.0, 0.9, 0.9])


def test_of_settings_that_tie_the_first_is_taken():
    grid = np.array([[0.1 + 0.2, 0.5], [0.3, 0.1]])
    assert halves.left_out(grid)[0] == 0.5
