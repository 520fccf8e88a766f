import numpy as np

from reproduction.baselines.curve import middles, refit, waves


def test_the_fit_is_ridge_regression_on_the_squeezed_past_and_the_block(rng):
    before, block = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    past, new = refit(5, 10, 4, contraction=0.6, penalty=0.3)
    seen = np.concatenate([waves(middles(10), 5) @ before, block, np.zeros((5, 3))])
    times = np.concatenate([0.6 * middles(10), 0.6 + 0.4 * middles(4)])
    rows = np.concatenate([waves(times, 5), np.sqrt(0.3) * np.eye(5)])
    expected = np.linalg.lstsq(rows, seen)[0]
    np.testing.assert_allclose(past @ before + new @ block, expected, atol=1e-9)


def test_waves_are_orthogonal_on_an_even_grid():
    at = waves(middles(12), 12)
    np.testing.assert_allclose(at.T @ at, np.diag([12.0] + [6.0] * 11), atol=1e-9)


def test_a_curve_that_never_changes_survives_the_squeeze():
    flat = np.array([[3.0], [0.0], [0.0], [0.0]])
    past, new = refit(4, 8, 4, contraction=0.5, penalty=1e-9)
    np.testing.assert_allclose(past @ flat + new @ np.full((4, 1), 3.0), flat, atol=1e-6)
