"""Half of the systems left out: what a choice made on one half is worth on the other."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

MOST = 20_000  # deals: all of them for up to 16 systems, of more systems so many by chance


def halves(n_systems: int) -> NDArray[np.bool_]:
    """Ways to deal systems into two halves, (deals, systems): true in the half that one looks at.

    Of an odd number the smaller half is looked at.

    >>> halves(4)[:2].astype(int)
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]])
    """
    half = n_systems // 2
    if comb(n_systems, half) > MOST:
        shuffles = np.random.default_rng(0).random((MOST, n_systems)).argsort(axis=1)
        return np.asarray(shuffles < half)
    dealt = np.array([*combinations(range(n_systems), half)], dtype=np.int64)
    return np.asarray((dealt[:, :, None] == np.arange(n_systems)).any(axis=1))


def left_out(grid: Floats) -> Floats:
    """For each deal, the mean on one half of what is best on the other; (settings, systems) in.

    >>> left_out(np.array([[0.9, 0.2], [0.8, 1.0]])).tolist()
    [0.2, 0.8]
    """
    seen = halves(grid.shape[1])
    # Rounded, so that of settings that tie the first is taken.
    best = (grid @ seen.T).round(9).argmax(axis=0)
    others = grid @ ~seen.T / (~seen).sum(axis=1)
    return np.asarray(others[best, np.arange(len(seen))])
