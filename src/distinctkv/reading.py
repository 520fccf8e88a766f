"""Reads of a whole batch of queries: attention over the slots, as `rule.read` for one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engines import blocked
from .engines.bounds import DOUBLE, Geometry
from .policy import check_real
from .rule import Floats, Keys, distances
from .slots import Ints, Slots

CELLS = 1 << 22  # weights held at once


def attention(
    slots: Slots, queries: Keys, theta: float, weight: NDArray[Any] | None
) -> Iterator[NDArray[Any]]:
    """Blocks of softmax weights (Q, S) of queries over slots (paper, eq. 3)."""
    check_real("theta", theta)
    theta = float(theta)
    if theta <= 0:
        raise ValueError(f"theta must be above 0, got {theta}; smaller reads more sharply")
    # Float32 carries a cosine to 1e-6 or so: enough for all but the sharpest reads.
    fine = slots.metric == "euclidean" or theta < 0.01
    keys: NDArray[Any] = slots["keys"].astype(np.float64 if fine else np.float32, copy=False)
    rows: NDArray[Any] = queries.astype(keys.dtype, copy=False)
    half: NDArray[Any] | float = 0.0
    if slots.metric == "euclidean":
        # Distances from the middle of the slots: far from the origin squares would cancel.
        middle = keys.mean(axis=0)
        keys, rows = keys - middle, rows - middle
    if fine:
        half = np.einsum("ij,ij->i", keys, keys) / 2
    bias = None if weight is None else np.log(weight).astype(keys.dtype)
    step = max(1, CELLS // max(1, slots.n))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        logits: NDArray[Any] = rows[part] @ keys.T - half
        if fine:
            _settle(logits, rows[part], queries[part], slots["keys"], theta)
        # The largest is taken off before dividing: then nothing overflows, however small theta.
        logits -= logits.max(axis=1, keepdims=True)
        with np.errstate(over="ignore"):
            logits /= theta
        if bias is not None:
            logits += bias
            logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        yield logits


def _settle(logits: Floats, rows: Floats, queries: Keys, keys: Keys, theta: float) -> None:
    """Take distances one by one where the product of long rows has lost what theta tells apart."""
    square, top = (rows * rows).sum(axis=1), logits.max(axis=1)
    error = 8 * (keys.shape[1] + 16) * DOUBLE * (square + np.maximum(square - 2 * top, 0))
    for row in np.flatnonzero(error > 1e-6 * theta):
        # What lies further below the best weighs nothing, however many tokens it holds.
        near = np.flatnonzero(logits[row] >= top[row] - 2 * error[row] - 100 * theta)
        logits[row] = -inf
        logits[row, near] = -distances(queries[row], keys[near]) / 2


def nearest(slots: Slots, queries: Keys, tau: float) -> tuple[Ints, Floats]:
    """Row of the nearest slot of each query, the oldest of equals, and the squared distance."""
    rows, squared = np.empty(len(queries), np.int64), np.empty(len(queries))
    for start in range(0, len(queries), blocked.CHUNK):
        part = queries[start : start + blocked.CHUNK]
        space = Geometry.of(part, tau, slots.metric, slots.reach, all_slots=True)
        space.novel[:] = -inf  # no query is novel: each wants its nearest slot
        if slots.merge.key != "first":
            space.sure[:] = inf
        match = blocked.nearest(slots, space)
        found = match.column
        open_ = np.flatnonzero(match.score <= space.sure)
        for token in open_[blocked.tied(space, match, open_)]:
            found[token], _ = blocked.exact(slots, space, int(token), found[:0])
        stop = start + len(part)
        rows[start:stop] = found
        gaps = slots["keys"][found].astype(np.float64) - part
        squared[start:stop] = (gaps * gaps).sum(axis=1)
    return rows, squared
