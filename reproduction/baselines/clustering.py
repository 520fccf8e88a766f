"""Offline k-means: slots fitted once the whole stream is known."""

# L tokens, S slots, Q queries, D key size, C value size

from __future__ import annotations

import warnings

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Float32s, Ids, TokenBaseline, at_least_one, similarity, softmax


class KMeans(TokenBaseline):
    """At most ``budget`` slots, the means of groups of tokens (Lloyd 1982), read by attention.

    Offline: every token is kept until the first read, which fits the slots with scikit-learn, the
    best of ``tries`` fits by squared distance, and drops the tokens; later writes are an
    error. ``len`` and ``nbytes`` count tokens before the fit, slots after it. A group that becomes
    empty is moved to the token farthest from its mean, as scikit-learn does.

    ``start`` is "k-means++" (Arthur and Vassilvitskii 2007, one candidate a draw) or "random"
    (tokens drawn evenly). The defaults are the best of both starts with 1 and 10 tries on the
    recall task; the paper's number is one try at random.

    >>> kmeans = KMeans(budget=2)
    >>> kmeans.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [5.0], [3.0]])
    array([-1, -1, -1])
    >>> len(kmeans), kmeans.read([[1.0, 0.0]]).round(3), len(kmeans)
    (3, array([[2.]]), 2)
    """

    card = Card(
        mechanism="k-means over the whole stream, softmax over the means",
        keeps="every token until the first read, then the mean key and value of each group",
        growth="with the stream, L, then at the fit down to the budget B",
        size="4 S (D + C)",
    )

    def __init__(
        self,
        budget: int,
        start: str = "k-means++",
        tries: int = 10,
        seed: int = 0,
        theta: float = 0.05,
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        if start not in ("k-means++", "random"):
            raise ValueError(f'start must be "k-means++" or "random", got {start!r}')
        self.start = start
        self.tries = at_least_one("tries", tries)
        self.seed = seed
        self._fitted = False

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        if self._fitted:
            raise ValueError("k-means is fitted and its tokens are gone; write all before you read")
        self._append(keys, values)
        return np.full(len(keys), -1)

    def _read(self, queries: Float32s) -> Floats:
        if not self._fitted:
            self._fit()
        # -d^2 / 2 but for a constant: a mean of unit keys is shorter than one.
        closeness = similarity(queries, self._keys) - (self._keys**2).sum(axis=1) / 2
        return softmax(closeness / self.theta) @ self._values

    def _fit(self) -> None:
        """Replace the tokens by slots."""
        rng = np.random.default_rng(self.seed)
        keys = self._keys.astype(np.float64)
        n_slots = min(self.budget, len(keys))
        fits = [lloyd(keys, self._initial(keys, n_slots, rng)) for _ in range(self.tries)]
        _, groups = min(fits, key=lambda fit: fit[0])
        groups = np.unique(groups, return_inverse=True)[1]
        self._keys = means(keys, groups).astype(np.float32)
        self._values = means(self._values.astype(np.float64), groups).astype(np.float32)
        self._fitted = True

    def _initial(self, keys: Floats, n_slots: int, rng: np.random.Generator) -> Floats:
        if self.start == "random":
            return keys[rng.choice(len(keys), n_slots, replace=False)]
        return spread(keys, n_slots, rng)


def spread(keys: Floats, n_slots: int, rng: np.random.Generator) -> Floats:
    """Keys drawn by their squared distance from those already drawn (k-means++).

    scikit-learn's version does not take a NumPy ``Generator``. Ends early when every key
    equals one that was drawn.
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


def lloyd(keys: Floats, centres: Floats) -> tuple[float, Ids]:
    """The squared distance that is left, and the group of each key.

    >>> lloyd(np.array([[0.0], [1.0], [8.0]]), np.array([[0.0], [1.0]]))[1]
    array([0, 0, 1])
    """
    from sklearn import cluster
    from sklearn.exceptions import ConvergenceWarning

    model = cluster.KMeans(len(centres), init=centres, n_init=1, tol=0.0)
    with warnings.catch_warnings():
        # Fewer distinct keys than centres: some groups are empty and make no slot.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(keys)
    return float(model.inertia_), model.labels_.astype(np.int64)


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
