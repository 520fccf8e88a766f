"""The delta rule: a token writes the difference between its value and what the state says."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card
from .state import LinearState, fraction


class Delta(LinearState):
    """A matrix that each token corrects, ``S = S + rate k (v - S^T k)^T``.

    Widrow and Hoff (1960); as a layer, DeltaNet (Schlag et al. 2021, Yang et al. 2024). At a rate
    of 1 a key forgets its old value for the new one. We deviate: one head, no short convolution,
    and one ``rate`` (their beta) for all tokens, which DeltaNet learns to set for each.

    On the recall stream, of eleven rates from .05 to 1, .1 and .13 do best. Where items are
    replaced, .2 does (of four).

    >>> state = Delta(rate=1.0)
    >>> state.write([[1.0, 0.0], [1.0, 0.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0]])
    array([[3.]])
    """

    card = Card(
        mechanism="each token corrects one matrix by its error",
        keeps="no token, only the matrix",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, rate: float = 0.1) -> None:
        super().__init__()
        self.rate = fraction("rate", rate)
        self.decay = 1.0

    def _absorb(self, keys: Floats, values: Floats) -> None:
        age = np.arange(len(keys))
        since = self.decay ** np.maximum(age[:, None] - age, 0)  # (L, L), from token to token
        before = self.decay ** (age[:, None] + 1)  # (L, 1), from the block's start to each token
        # A token's error depends on the errors before it: one triangular system for the block.
        among = np.eye(len(keys)) + self.rate * np.tril(since * (keys @ keys.T), -1)
        errors = np.linalg.solve(among, values - before * (keys @ self._state))
        added = (self.rate * since[-1][:, None] * keys).T @ errors
        self._state = (before[-1] * self._state + added).astype(np.float32)


class GatedDelta(Delta):
    """The delta rule on a matrix that fades first, ``S = d S + rate k (v - d S^T k)^T``.

    Gated DeltaNet (Yang et al. 2025). We deviate as in ``Delta``; ``decay`` (d, their alpha) is the
    same for all tokens, too.

    On the recall stream, of six decays from .98 to .9995 the slowest do best, and none does better
    than no decay. Where items are replaced, at this rate, .999 and no decay do equally well: the
    delta rule already forgets what it overwrites.

    >>> state = GatedDelta(rate=1.0, decay=0.5)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0], [0.0, 1.0]])
    array([[2.],
           [3.]])
    """

    card = Card(
        mechanism="one matrix fades, and each token corrects it by its error",
        keeps="no token, only the matrix",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, rate: float = 0.1, decay: float = 0.999) -> None:
        super().__init__(rate)
        self.decay = fraction("decay", decay)
