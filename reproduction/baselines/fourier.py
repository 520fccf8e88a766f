"""A sum over random waves: a fixed state as large as one likes, whatever the size of a key."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Singles, positive, seeded, whole
from .state import State


class Fourier(State):
    """The sum of all ``f(k) v^T``, with ``f`` random waves (Rahimi and Recht 2007).

    ``f(q) f(k)`` is near ``exp(-scale^2 |q - k|^2 / 2)``, nearer the more features there are. It is
    the paper's fixed state, in a space wide enough to tell the items apart. Peng et al. (2021) use
    such features for attention and divide by their sum; we do not, as the sum is the same for all
    classes.

    With their projections, 66 features hold as many bytes as 64 slots of a key of 32 and a class
    label, if values have 16 numbers. On the recall stream scales from 2.25 to 3.5 do equally well
    at 132, 1 fails, and 4 and 5 do worse (nine tried, three seeds); at 64 features 2.5 does best.

    >>> state = Fourier(n_features=132)
    >>> state.write(np.eye(3), [[1.0], [2.0], [3.0]])
    array([-1, -1, -1])
    >>> state.read(np.eye(3)).round(), len(state)
    (array([[1.],
           [2.],
           [3.]]), 132)
    """

    card = Card(
        mechanism="one matrix sums all f(k) v^T, f the sines and cosines of random projections",
        keeps="no token, only the sum and the projections",
        growth="fixed",
        size="4 features C + 2 features D",
    )

    def __init__(self, n_features: int = 66, scale: float = 2.5, seed: int = 0) -> None:
        super().__init__()
        if whole("n_features", n_features) < 2 or n_features % 2:
            raise ValueError(
                f"n_features must be even and at least 2, got {n_features}; "
                "each wave has a sine and a cosine"
            )
        self.n_features = int(n_features)
        self.scale = positive("scale", scale)
        self.seed = seeded(seed)

    def _start(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.n_features, n_values), np.float32)
        self._turns = projections(width, self.n_features, self.scale, self.seed)

    def _absorb(self, keys: Floats, values: Floats) -> None:
        self._state += (waves(keys, self._turns).T @ values).astype(np.float32)

    def _answer(self, queries: Singles) -> Floats:
        answer: Floats = waves(queries.astype(np.float64), self._turns) @ self._state
        return answer


def projections(width: int, n_features: int, scale: float, seed: int) -> Singles:
    """Directions and speeds of the waves, (D, features / 2), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((width, n_features // 2))
    return (scale * drawn).astype(np.float32)


def waves(rows: Floats, turns: Singles) -> Floats:
    """Features whose products approach a Gaussian of the distance; each row has length one.

    >>> features = waves(np.eye(2), projections(2, n_features=4000, scale=1.0, seed=0))
    >>> (features @ features.T).round(1)                 # exp(-1) = .37
    array([[1. , 0.4],
           [0.4, 1. ]])
    """
    phases = rows @ turns
    found: Floats = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(turns.shape[1])
    return found
