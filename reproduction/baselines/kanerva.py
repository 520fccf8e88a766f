"""A Gaussian belief about a table of values, sharpened by every token."""

# L tokens, M rows, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats, unit

from .base import Card, Singles, at_least_one, positive, seeded
from .state import State


class Kanerva(State):
    """A table of ``n_rows`` values, Gaussian with a mean and a covariance, updated by Bayes' rule.

    The Kanerva machine (Wu et al. 2018): a value is seen as ``w`` times the table plus noise, and
    ``w``, its address, says how much each row has to do with the key. A row takes part when its
    fixed random place is on the key's side of the origin, by its cosine: Kanerva's own activation
    (1988) made gradual. We deviate: places are drawn from a seed and not learned, there is no
    encoder, and ``noise`` (a variance, the prior's being 1) is set.

    A key on whose side no place lies is stored nowhere; among 64 that does not happen. On the
    recall stream, of addresses by softmax (five temperatures), by threshold hard or gradual (0 to
    .3) and linear ones, this does best; of 32 to 128 rows, 64 suffice, and noise from .01 to .3
    makes no difference there.

    >>> state = Kanerva(noise=0.25)
    >>> state.write([[1.0, 0.0]], [[1.0]])
    array([-1])
    >>> state.read([[1.0, 0.0]]).round(3)               # 1 / (1 + .25)
    array([[0.8]])
    """

    card = Card(
        mechanism="Bayesian regression of values on addresses, the nearness to random places",
        keeps="no token, only a mean, a covariance and the places",
        growth="fixed",
        size="4 M (M + C + D)",
    )

    def __init__(self, n_rows: int = 64, noise: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.n_rows = at_least_one("n_rows", n_rows)
        self.noise = positive("noise", noise)
        self.seed = seeded(seed)

    def _start(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.n_rows, n_values), np.float32)
        self._covariance = np.eye(self.n_rows, dtype=np.float32)
        self._places = places(width, self.n_rows, self.seed)

    def _absorb(self, keys: Floats, values: Floats) -> None:
        address = addresses(keys, self._places)  # (L, M)
        shared = address @ self._covariance  # (L, M), of what is seen with each row
        seen = shared @ address.T + self.noise * np.eye(len(keys))  # (L, L), of what is seen
        gain = np.linalg.solve(seen, shared).T  # (M, L)
        self._state += (gain @ (values - address @ self._state)).astype(np.float32)
        self._covariance -= (gain @ shared).astype(np.float32)

    def _answer(self, queries: Singles) -> Floats:
        mean: Floats = addresses(queries.astype(np.float64), self._places) @ self._state
        return mean


def places(width: int, n_rows: int, seed: int) -> Singles:
    """Random places on the sphere, (M, D), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((n_rows, width))
    return unit(drawn).astype(np.float32)


def addresses(rows: Floats, among: Singles) -> Floats:
    """How much each of the places is active for a key, (L, D) to (L, M); length one.

    >>> addresses(np.array([[1.0, 0.0], [-1.0, 0.0]]), places(2, n_rows=3, seed=0)).round(2)
    array([[0.57, 0.82, 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    active = np.maximum(rows @ among.T, 0.0)
    length: Floats = np.linalg.norm(active, axis=1, keepdims=True)
    return active / np.where(length > 0, length, 1.0)
