"""Reads of a whole batch of queries: attention over the slots, as `rule.read` for one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .engines import blocked
from .engines.geometry import Geometry
from .rule import Floats, Keys
from .slots import Ints, Slots

CELLS = 1 << 22  # weights held at once


def attention(
    slots: Slots, queries: Keys, theta: float, weight: NDArray[Any] | None
) -> Iterator[NDArray[Any]]:
    """Blocks of softmax weights (Q, S) of queries over slots (paper, eq. 3)."""
    if isnan(theta) or theta <= 0:
        raise ValueError(f"theta must be above 0, got {theta}; smaller reads more sharply")
    # Float32 carries a cosine to 1e-6 or so: enough for all but the sharpest reads.
    fine = slots.metric == "euclidean" or theta < 0.01
    dtype: Any = np.float64 if fine else np.float32
    keys: NDArray[Any] = slots["keys"].astype(dtype, copy=False)
    offset = np.zeros(slots.n) if weight is None else np.log(weight)
    if slots.metric == "euclidean":
        offset = offset - (keys * keys).sum(axis=1) / (2 * theta)
    step = max(1, CELLS // max(1, slots.n))
    for start in range(0, len(queries), step):
        logits: NDArray[Any] = queries[start : start + step].astype(dtype, copy=False) @ keys.T
        logits /= dtype(theta)
        logits += offset.astype(dtype)
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(axis=1, keepdims=True)
        yield logits


def nearest(slots: Slots, queries: Keys, tau: float) -> tuple[Ints, Floats]:
    """Row of the nearest slot of each query, the oldest of equals, and the squared distance."""
    rows, squared = np.empty(len(queries), np.int64), np.empty(len(queries))
    for start in range(0, len(queries), blocked.CHUNK):
        part = queries[start : start + blocked.CHUNK]
        space = Geometry.of(part, tau, slots.metric, slots.reach)
        space.novel[:] = -inf  # no query is novel: each wants its nearest slot
        if slots.merge.key != "first":
            space.sure[:] = inf
        match = blocked.nearest(slots, space)
        found = match.column
        doubtful = np.flatnonzero(match.score <= space.sure)
        for token in blocked.in_doubt(space, match, doubtful):
            found[token], _ = blocked.exact(slots, space, int(token), found[:0])
        stop = start + len(part)
        rows[start:stop] = found
        gaps = slots["keys"][found].astype(np.float64) - part
        squared[start:stop] = (gaps * gaps).sum(axis=1)
    return rows, squared
