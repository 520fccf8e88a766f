"""Linear attention: the exponential is cut off after its square, so that sums suffice."""

# Q queries, L tokens, P key size after the projection, F = (P + 1) (P + 2) / 2 features

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats, unit

from .base import Card, Singles, at_least_one, positive, seeded
from .state import State


class Based(State):
    """Attention with ``1 + s + s^2 / 2`` in place of ``exp(s)``, ``s = q k / theta``.

    Such weights are products of features of the query and of the key, so the sums of ``f(k) v^T``
    and ``f(k)`` are all there is to keep (Katharopoulos et al. 2020; these features: Based, Arora
    et al. 2024). We deviate: Based learns to project keys to 16 numbers and adds a sliding window;
    here there is no window, and keys are whole, or projected at random to ``width`` numbers and
    brought back to length one.

    On the recall stream temperatures of .02 to .1 do equally well, .2 to 1 worse (six tried), and
    whole keys better than any projection; at ``width=16`` the state, with the projection, is about
    as large as a slot for each item.

    >>> state = Based(theta=0.1)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0]]).round(3)               # 61 / (61 + 1)
    array([[0.984]])
    """

    card = Card(
        mechanism="softmax attention with exp cut off after its square, as sums over features",
        keeps="no token, only the sums; P = D, or the width keys are projected to, and how",
        growth="fixed",
        size="2 (P + 1) (P + 2) (C + 1), and 4 D P if P < D",
    )

    def __init__(self, theta: float = 0.05, width: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.theta = positive("theta", theta)
        self.width = None if width is None else at_least_one("width", width)
        self.seed = seeded(seed)

    def _start(self, width: int, n_values: int) -> None:
        projected = width if self.width is None else min(width, self.width)
        n_features = (projected + 1) * (projected + 2) // 2
        self._state = np.zeros((n_features, n_values + 1), np.float32)
        self._onto = projection(width, projected, self.seed) if projected < width else None

    def _absorb(self, keys: Floats, values: Floats) -> None:
        marked = np.column_stack([values, np.ones(len(values))])
        self._state += (features(self._project(keys)).T @ marked).astype(np.float32)

    def _answer(self, queries: Singles) -> Floats:
        projected = self._project(queries.astype(np.float64))
        read: Floats = (features(projected) * powers(projected.shape[1], self.theta)) @ self._state
        return read[:, :-1] / read[:, -1:]

    def _project(self, rows: Floats) -> Floats:
        return rows if self._onto is None else unit(rows @ self._onto)


def projection(width: int, projected: int, seed: int) -> Singles:
    """A random subspace, (D, P), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((width, projected))
    return np.linalg.qr(drawn)[0].astype(np.float32)


def features(rows: Floats) -> Floats:
    """One, the numbers of a row, and their products, (L, P) to (L, F).

    >>> features(np.array([[2.0, 3.0]]))
    array([[1., 2., 3., 4., 6., 9.]])
    """
    i, j = np.triu_indices(rows.shape[1])
    return np.hstack([np.ones((len(rows), 1)), rows, rows[:, i] * rows[:, j]])


def powers(width: int, theta: float) -> Floats:
    """What each feature weighs in ``1 + s + s^2 / 2``; a mixed product stands for two.

    >>> powers(2, theta=0.5)
    array([1., 2., 2., 2., 4., 2.])
    """
    i, j = np.triu_indices(width)
    squares = np.where(i == j, 0.5, 1.0) / theta**2
    return np.concatenate([[1.0], np.full(width, 1 / theta), squares])
