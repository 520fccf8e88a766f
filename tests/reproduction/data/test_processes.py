import numpy as np
import pytest

from reproduction.data import restaurant, zipf


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
