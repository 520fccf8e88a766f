"""A scikit-learn estimator: clusters whose number the data decide, in one pass."""

from __future__ import annotations

from math import frexp, inf, ldexp
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cache import Cache
from .extras import install
from .inputs import LARGEST, faults
from .policy import Concentration, KeyPolicy, Merge, Metric, check_real

try:
    from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
    from sklearn.metrics import pairwise_distances
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"OnlineDPMeans is a scikit-learn estimator: {install('sklearn')}") from error

Ints = NDArray[np.int64]
# N rows, D features, K clusters
FINE = 32  # steps that float32 must have within tau
LEAST = 2.0**-149  # the smallest step of float32
FAR = 1e150  # a larger distance has no square in float64


class OnlineDPMeans(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clustering by the rule: a row further than ``tau`` from every centre opens a cluster.

    ``tau`` is a distance (``metric="euclidean"``) or 1 - cosine (``"cosine"``). Centres are the
    first row of a cluster (``key="first"``), the mean of its rows or a mean that follows drift
    (``"ema"``). With a ``budget`` the least used clusters go. Rows are taken in order, so that
    `partial_fit` in pieces gives what `fit` gives. Centres are float32: rows so far from zero that
    this would blur ``tau`` are refused.

    >>> rows = [[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [0.0, 0.1]]
    >>> model = OnlineDPMeans(tau=1.0).fit(rows)
    >>> model.labels_
    array([0, 0, 1, 0])
    >>> model.predict([[4.8, 5.1]]), model.cluster_centers_.tolist()
    (array([1]), [[0.0, 0.0], [5.0, 5.0]])
    """

    def __init__(
        self,
        tau: float = 0.5,
        *,
        metric: Metric = "euclidean",
        key: KeyPolicy = "first",
        budget: float = inf,
    ) -> None:
        self.tau = tau
        self.metric = metric
        self.key = key
        self.budget = budget

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Forget what was learned, and cluster these rows; ``labels_`` are theirs."""
        return self._learn(X, reset=True)

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Go on with further rows; ``labels_`` are theirs alone."""
        return self._learn(X, reset=not hasattr(self, "cache_"))

    def predict(self, X: ArrayLike) -> Ints:
        """The nearest cluster of each row, however far; nothing is learned."""
        check_is_fitted(self)
        found, _ = self.cache_.nearest(self._valid(X))
        return self._labels(found)

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Distance of each row from each centre (N, K), in the unit of ``tau``."""
        check_is_fitted(self)
        rows = self._valid(X)
        found: NDArray[Any] = pairwise_distances(rows, self.cluster_centers_, metric=self.metric)
        return found

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Names of the columns of `transform`."""
        check_is_fitted(self)
        return np.array([f"onlinedpmeans{k}" for k in range(self.n_clusters_)], object)

    @property
    def cluster_centers_(self) -> NDArray[np.float64]:
        """Centres (K, D), oldest first; under the cosine of length one."""
        return self.cache_.slots.keys.astype(np.float64)

    @property
    def counts_(self) -> Ints:
        """Rows in each cluster."""
        return self.cache_.slots.count

    @property
    def n_clusters_(self) -> int:
        """Clusters held now."""
        return len(self.cache_)

    def _learn(self, X: ArrayLike, *, reset: bool) -> Self:
        policy = self._policy()
        if not reset:
            self._check_same(policy)
        before = self.__dict__.copy()
        try:
            rows = self._valid(X, reset=reset)
            self._check_fine(rows)
            if reset:
                self.cache_ = Cache(policy, merge=Merge(key=self.key), metric=self.metric)
            self.labels_ = self._labels(self.cache_.write(rows))
        except BaseException:
            self.__dict__ = before  # scikit-learn notes the features before we refuse a row
            raise
        return self

    def _policy(self) -> Concentration:
        tau = self.tau
        check_real("tau", tau)
        if FAR < tau < inf:
            raise ValueError(
                f"tau must be at most {FAR:g}, for its square is compared, got {tau}; rows have "
                f"numbers up to {LARGEST:g}, so that inf or a smaller one makes one cluster as well"
            )
        if tau < 0:
            raise ValueError(f"tau must be 0 or more, got {tau}; 0 merges identical rows only")
        # The rule compares squared distances.
        far = float(tau) ** 2 if self.metric == "euclidean" else float(tau)
        return Concentration.fixed(far, self.budget)

    def _check_same(self, policy: Concentration) -> None:
        """Refuse to go on under another setting: the centres held were chosen by this one."""
        cache = self.cache_
        now = (policy.tau, policy.base, self.key, self.metric)
        then = (cache.concentration.tau, cache.concentration.base, cache.merge.key, cache.metric)
        for name, new, old in zip(("tau", "budget", "key", "metric"), now, then, strict=True):
            if new != old:
                raise ValueError(
                    f"{name} was set to {getattr(self, name)!r} after rows were learned under "
                    "another, and cannot change on the way; set it back, or call fit to begin anew"
                )

    def _check_fine(self, rows: NDArray[Any]) -> None:
        """Refuse rows whose distances float32 would blur; ``tau=0`` asks for equal rows only."""
        peak = max(float(rows.max()), -float(rows.min()))
        step = max(ldexp(1.0, frexp(peak)[1] - 24), LEAST) if peak else 0.0
        if self.metric == "euclidean" and step * FINE > self.tau > 0:
            raise ValueError(
                f"float32 has steps of {step:g} at {peak:g}, the largest number here; they must be "
                f"at most tau / {FINE}, and tau is {self.tau:g}: take the mean of each column off "
                "(once, the same for all rows), scale the columns, or choose a larger tau"
            )

    def _valid(self, X: ArrayLike, *, reset: bool = False) -> NDArray[Any]:
        rows: NDArray[Any] = validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])
        for row in np.flatnonzero(faults(rows, self.metric)).tolist():
            raise ValueError(
                f"row {row} is all zeros and has no direction; drop it, or use metric='euclidean'"
                if self.metric == "cosine"
                else f"row {row} has numbers beyond {LARGEST:g}, too large to compare; scale them"
            )
        return rows

    def _labels(self, ids: Ints) -> Ints:
        """Places of slots among those held now; -1 of those that were evicted since."""
        if self.cache_.n_opened == len(self.cache_):
            return ids  # none is gone, so and ids are places
        held = self.cache_.ids
        place = np.minimum(np.searchsorted(held, ids), len(held) - 1)
        return np.where(held[place] == ids, place, -1)
