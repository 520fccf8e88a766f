"""What the evicting peers share: a budget of tokens, settled a block at a time."""

# l tokens of a block, S kept before it

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

from .base import Ids, Singles, TokenPeer, at_least_one

Bools = NDArray[np.bool_]


class EvictingPeer(TokenPeer):
    """A budget of tokens; a mechanism says which one leaves at each step that has one too many.

    A block of tokens is laid behind the kept ones, as columns, so that similarities come from one
    product and a step of the mechanism is a few operations on a row. Decisions are still taken
    token by token: no result depends on where blocks or chunks begin. A token stays at least for
    its own step, so every token has an id.
    """

    # Small tables: fewer columns per token, and no threads waking up in BLAS for each product.
    _block = 32

    def __init__(self, budget: int, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        for start in range(0, len(keys), self._block):
            part = slice(start, start + self._block)
            before = len(self._keys)
            self._append(keys[part], values[part])
            alive = self._settle(self._keys.astype(np.float64), before)
            self._keys, self._values = self._keys[alive], self._values[alive]
        return np.arange(self._tokens, self._tokens + len(keys))

    @abstractmethod
    def _settle(self, keys: Floats, before: int) -> Bools:
        """Which of the columns (S + l, D) stay; the first S = ``before`` were kept before."""
