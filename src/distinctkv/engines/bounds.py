"""Where a fast product may be trusted: scores, thresholds, the certificate, the error bound.

A score is largest for the nearest slot: x.k for unit rows, x.k - |k|^2/2 for the squared distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..policy import Metric
from ..rule import Floats, Keys, distances, from_distance
from ..slots import Bools, Ints

# L tokens, S slots, D key size
SINGLE, DOUBLE = 2.0**-24, 2.0**-53  # rounding of one operation
SMALLEST = 2.0**-126  # a float32 below this may be lost


@dataclass(slots=True)
class Geometry:
    """Rows of a chunk, and the scores at which each of them is novel, certified, in doubt."""

    metric: Metric
    tau: float
    keys: Keys  # (L, D) as given: exact distances are taken from these
    rows: NDArray[Any]  # (L, D) the same in the type of the products
    novel: Floats  # (L,) below this score a token is novel
    sure: Floats  # (L,) above it the slot is the nearest, whatever other slots there are
    error: Floats  # (L,) no score is wrong by more
    halved: bool  # whether |k|^2/2 is taken off the product

    @classmethod
    def of(
        cls, keys: Keys, tau: float, metric: Metric, reach: float, *, all_slots: bool = False
    ) -> Geometry:
        """Bounds for a chunk, where no slot key is longer than ``reach``.

        Slots with first-occurrence keys are pairwise further apart than tau, by an angle phi say.
        A slot within phi/2 of a token is then nearer than any other can be: cos(phi/2) is
        sqrt((1 + s)/2) with s = 1 - tau. For distances, half of sqrt(tau) takes its place.

        Slots several times longer than a token and sqrt(tau) score far below its threshold, however
        wrong, so they do not widen its bound, unless ``all_slots`` are to be ranked.
        """
        terms = keys.shape[1] + 16
        if metric == "cosine" and terms * SINGLE <= tau / 64:
            novel, error = np.full(len(keys), 1 - tau), np.full(len(keys), terms * SINGLE)
            # Rows have length one only to 1e-7, and angles speak of exact unit vectors.
            sure = np.sqrt(max(0.0, 1 - tau / 2) + 8 * SINGLE) + 1e-6 + error
            return cls(metric, tau, keys, keys, novel, sure, error, halved=False)
        wide = keys.astype(np.float64)
        square = (wide * wide).sum(axis=1)
        far = 2 * tau if metric == "cosine" else tau
        size = np.sqrt(square)
        reaches = np.full(len(keys), max(reach, float(size.max(initial=0.0))))
        if not all_slots:
            reaches = np.minimum(reaches, 4 * (size + np.sqrt(far)))
        size = terms * (size * reaches + reaches * reaches)
        rough = size * SINGLE + terms * SMALLEST
        # A threshold too fine for float32 takes products in float64, with their own bound.
        fine = metric == "cosine" or float(rough.max(initial=0.0)) > tau / 64
        error = size * DOUBLE if fine else rough
        novel, sure = (square - far) / 2, (square - far / 4) / 2 + error
        return cls(metric, tau, keys, wide if fine else keys, novel, sure, error, halved=True)

    def scores(self, tokens: Ints | slice, keys: Keys) -> NDArray[Any]:
        """Score of each named token against each row of ``keys``, right to within ``error``."""
        against = keys.astype(self.rows.dtype, copy=False)
        product: NDArray[Any] = self.rows[tokens] @ against.T
        if self.halved:
            product -= 0.5 * np.einsum("ij,ij->i", against, against)
        return product

    def beside(self, tokens: Ints, keys: Keys) -> NDArray[Any]:
        """Score of each named token against the one key beside it, right to within ``error``."""
        against = keys.astype(self.rows.dtype, copy=False)
        product: NDArray[Any] = np.einsum("ij,ij->i", self.rows[tokens], against)
        if self.halved:
            product -= 0.5 * np.einsum("ij,ij->i", against, against)
        return product

    def settle(self, token: int, keys: Keys, ids: Ints) -> tuple[int, bool]:
        """By the law: the nearest of ``keys`` (the oldest of equals), and whether it is novel."""
        squared = distances(self.keys[token], keys)
        equal = np.flatnonzero(squared == squared.min())
        nearest = int(equal[ids[equal].argmin()])
        return nearest, from_distance(float(squared[nearest]), self.metric) > self.tau

    def beyond(self, tokens: Ints, keys: Keys) -> Bools:
        """By the law: which tokens are novel to the one key beside each."""
        gaps = self.keys[tokens].astype(np.float64) - keys.astype(np.float64)
        squared = np.add.accumulate(gaps * gaps, axis=1)[:, -1]
        novelty = np.minimum(squared / 2, 2.0) if self.metric == "cosine" else squared
        return np.asarray(novelty > self.tau)
