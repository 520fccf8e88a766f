"""Keys of slots by their ids, and distances from them as the law sums them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cache import Cache
from .inputs import pieces
from .rule import Floats, Keys
from .slots import Ints


def keys_of(cache: Cache, ids: Ints) -> Keys:
    """The keys (L, D) of slots that a cache holds."""
    slots = cache._slots
    order = np.argsort(slots["ids"], kind="stable")
    keys: Keys = slots["keys"][order[np.searchsorted(slots["ids"], ids, sorter=order)]]
    return keys


def novelty_beside(rows: NDArray[Any], keys: Keys) -> Floats:
    """1 - cosine of each unit row to the key beside it, to the last bit as `rule.novelty` has it.

    >>> rows = np.eye(3, dtype=np.float32)
    >>> novelty_beside(rows, rows[[0, 0, 2]])
    array([0., 1., 0.])
    """
    squares = np.empty(len(rows))
    for part in pieces(rows):
        gaps = rows[part].astype(np.float64) - keys[part]
        squares[part] = np.add.accumulate(gaps * gaps, axis=1)[:, -1]
    return np.minimum(squares / 2, 2.0)
