"""Lloyd's algorithm and two ways to start it: what offline k-means is made of."""

# N tokens, S slots, D key size

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distinctkv.rule import Floats

from .base import Ids

Start = Callable[[Floats, int, np.random.Generator], Floats]

# The loop ends by itself, here after about ten rounds; this stops it where rounding cycles.
_MOST_ROUNDS = 300
# A product of no more multiplications wakes no threads in BLAS; for small ones they cost the most.
_LARGEST = 2**18


def at_random(keys: Floats, n_slots: int, rng: np.random.Generator) -> Floats:
    """Slots that start at tokens drawn evenly."""
    return keys[rng.choice(len(keys), n_slots, replace=False)]


def spread(keys: Floats, n_slots: int, rng: np.random.Generator) -> Floats:
    """Slots that start at tokens drawn by their squared distance from those already drawn.

    k-means++ (Arthur and Vassilvitskii 2007), one candidate a draw. Ends early when every token
    has a slot on it.
    """
    drawn = [int(rng.integers(len(keys)))]
    gaps = np.full(len(keys), np.inf)
    while len(drawn) < n_slots:
        away = keys - keys[drawn[-1]]
        gaps = np.minimum(gaps, np.einsum("nd,nd->n", away, away))
        odds = gaps.cumsum()
        if odds[-1] == 0:
            break
        place = np.searchsorted(odds, rng.random() * odds[-1], side="right")
        drawn.append(min(int(place), len(keys) - 1))
    return keys[drawn]


def lloyd(keys: Floats, slots: Floats) -> tuple[float, Ids]:
    """The squared distance left over, but for a constant, and the group of each token.

    A slot moves to the mean of the tokens nearest it until no token changes its slot.

    >>> lloyd(np.array([[0.0], [1.0], [8.0]]), np.array([[0.0], [1.0]]))[1]
    array([0, 0, 1])
    """
    groups, slots = np.full(len(keys), -1), slots.copy()
    for _ in range(_MOST_ROUNDS):
        gaps = distances(keys, slots)
        nearest = gaps.argmin(axis=1)
        if (nearest == groups).all():
            break
        groups = nearest
        taken = np.unique(groups)
        slots[taken] = means(keys, np.searchsorted(taken, groups))
    return float(gaps.min(axis=1).sum()), groups


def distances(keys: Floats, slots: Floats) -> Floats:
    """Squared distances (N, S), less the squared length of each key.

    >>> distances(np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]]))
    array([[ 1.,  9.],
           [-1.,  3.]])
    """
    block = max(1, _LARGEST // slots.size)
    parts = [keys[start : start + block] @ slots.T for start in range(0, len(keys), block)]
    gaps: Floats = (slots**2).sum(axis=1) - 2 * np.concatenate(parts)
    return gaps


def means(rows: Floats, groups: Ids) -> Floats:
    """The mean of the rows of each group; groups are numbered from 0 and none is empty.

    >>> means(np.array([[0.0], [8.0], [2.0]]), np.array([0, 1, 0]))
    array([[1.],
           [8.]])
    """
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    total: Floats = np.add.reduceat(rows[order], np.cumsum(sizes) - sizes)
    return total / sizes[:, None]
