"""Error bounds of fast products: scores, thresholds, and the certificate of the nearest slot.

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
SMALLEST = 2.0**-126  # a float32 below this may be flushed to 0
PAIR_CELLS = 1 << 16  # elements of float64 at a time, so that they stay in the L2 cache


@dataclass(slots=True)
class ScoreBounds:
    """Rows of a chunk, and the scores at which a token is surely novel or its slot certain."""

    metric: Metric
    tau: float
    keys: Keys  # (L, D) as given: exact distances are taken from these
    rows: NDArray[Any]  # (L, D) the same in the type of the products
    novel_below: Floats  # (L,) below this score a token is novel
    certain_above: Floats  # (L,) above it the slot is the nearest, whatever other slots there are
    error: Floats  # (L,) no score is wrong by more
    halved: bool  # whether |k|^2/2 is subtracted from the product

    @classmethod
    def of_chunk(
        cls, keys: Keys, tau: float, metric: Metric, max_norm: float, *, all_slots: bool = False
    ) -> ScoreBounds:
        """Bounds for a chunk, where no slot key is longer than ``max_norm``.

        Slots with first-occurrence keys are pairwise further apart than tau, by an angle phi say.
        A slot within phi/2 of a token is then nearer than any other can be: cos(phi/2) is
        sqrt((1 + s)/2) with s = 1 - tau. For distances, half of sqrt(tau) takes its place.

        Slots several times longer than a token and sqrt(tau) score far below its threshold, however
        wrong, so they do not widen its bound, unless ``all_slots`` are to be ranked.
        """
        terms = keys.shape[1] + 16
        if metric == "cosine" and float32_suffices(keys.shape[1], tau):
            novel, error = np.full(len(keys), 1 - tau), np.full(len(keys), terms * SINGLE)
            certain = certain_cosine(tau) + error
            return cls(metric, tau, keys, keys, novel, certain, error, halved=False)
        wide = keys.astype(np.float64)
        square = (wide * wide).sum(axis=1)
        far = 2 * tau if metric == "cosine" else tau
        norms = np.sqrt(square)
        longest = np.full(len(keys), max(max_norm, float(norms.max(initial=0.0))))
        if not all_slots:
            longest = np.minimum(longest, 4 * (norms + np.sqrt(far)))
        size = terms * (norms * longest + longest * longest)
        rough = size * SINGLE + terms * SMALLEST
        # A threshold too fine for float32 takes products in float64, with their own bound.
        fine = metric == "cosine" or float(rough.max(initial=0.0)) > tau / 64
        error = size * DOUBLE if fine else rough
        novel, certain = (square - far) / 2, (square - far / 4) / 2 + error
        return cls(metric, tau, keys, wide if fine else keys, novel, certain, error, halved=True)

    def scores(self, tokens: Ints | slice, keys: Keys) -> NDArray[Any]:
        """Score of each named token against each row of ``keys``, right to within ``error``."""
        against = keys.astype(self.rows.dtype, copy=False)
        product: NDArray[Any] = self.rows[tokens] @ against.T
        if self.halved:
            product -= 0.5 * np.einsum("ij,ij->i", against, against)
        return product

    def paired_scores(self, tokens: Ints, keys: Keys) -> NDArray[Any]:
        """Score of each named token against its one row of ``keys``, right to within ``error``."""
        against = keys.astype(self.rows.dtype, copy=False)
        product: NDArray[Any] = np.einsum("ij,ij->i", self.rows[tokens], against)
        if self.halved:
            product -= 0.5 * np.einsum("ij,ij->i", against, against)
        return product

    def exact_nearest(self, token: int, keys: Keys, ids: Ints) -> tuple[int, bool]:
        """By the reference: the nearest of ``keys`` (the oldest of equals), and is it novel?"""
        squared = distances(self.keys[token], keys)
        equal = np.flatnonzero(squared == squared.min())
        nearest = int(equal[ids[equal].argmin()])
        return nearest, from_distance(float(squared[nearest]), self.metric) > self.tau

    def exactly_novel(self, tokens: Ints, keys: Keys) -> Bools:
        """By the reference: which tokens are novel to their one row of ``keys``."""
        return np.asarray(paired_novelty(self.keys[tokens], keys, self.metric) > self.tau)


def float32_suffices(width: int, tau: float) -> bool:
    """Whether float32 cosines are finer than the threshold by a wide margin."""
    return (width + 16) * SINGLE <= tau / 64


def certain_cosine(tau: float) -> float:
    """The cosine of half the angle between slots, beyond which no other slot can be nearer."""
    # Rows have length one only to 1e-7, and the angle is that of exact unit vectors.
    return float(np.sqrt(max(0.0, 1 - tau / 2) + 8 * SINGLE)) + 1e-6


def paired_novelty(rows: NDArray[Any], keys: Keys, metric: Metric) -> Floats:
    """Novelty of each row to its one row of ``keys``, bit for bit as `rule.novelty` gives it.

    >>> rows = np.eye(3, dtype=np.float32)
    >>> paired_novelty(rows, rows[[0, 0, 2]], "cosine")
    array([0., 1., 0.])
    """
    squared = np.empty(len(rows))
    step = max(16, PAIR_CELLS // rows.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        gaps = rows[part].astype(np.float64) - (keys[part] if len(keys) > 1 else keys)
        squared[part] = np.add.accumulate(gaps * gaps, axis=1)[:, -1]
    return np.minimum(squared / 2, 2.0) if metric == "cosine" else squared
