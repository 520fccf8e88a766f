"""Ridge regression on waves over time, for a past that makes room for what comes."""

# N waves, L tokens

from __future__ import annotations

from functools import lru_cache

import numpy as np

from distinctkv.rule import Floats


def middles(n: int) -> Floats:
    """The middles of n equal parts of [0, 1].

    >>> middles(2)
    array([0.25, 0.75])
    """
    return (np.arange(n) + 0.5) / n


def waves(times: Floats, n_waves: int) -> Floats:
    """The first cosines that fit half periods into [0, 1], at each time, (L, N)."""
    found: Floats = np.cos(np.pi * times[:, None] * np.arange(n_waves))
    return found


# The matrices follow from the settings and the length of the stream: they are the same for every
# memory, and none holds them.
@lru_cache(maxsize=32)
def refit(
    n_waves: int, n_samples: int, block: int, contraction: float, penalty: float
) -> tuple[Floats, Floats]:
    """The matrices by which past coefficients, (N, N), and a block, (N, L), make the new ones."""
    then = middles(n_samples)
    now = contraction + (1 - contraction) * middles(block)
    at = waves(np.concatenate([contraction * then, now]), n_waves)
    fit: Floats = np.linalg.inv(at.T @ at + penalty * np.eye(n_waves)) @ at.T
    return fit[:, :n_samples] @ waves(then, n_waves), fit[:, n_samples:]
