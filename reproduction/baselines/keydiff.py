"""Key-similarity eviction as published: the token most like the mean key leaves."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card
from .evicting import Bools, EvictingPeer


class KeyDiff(EvictingPeer):
    """A budget of tokens; the one whose key is most like the mean of the kept keys leaves.

    KeyDiff (Park et al. 2025), with unit keys in the mean. We deviate: a token leaves at each step
    and not a block at a time, and the newest stays for its own step. The budget is its one
    setting. Where items lie in all directions the mean says little about who has a twin;
    `Redundancy` asks that directly.

    >>> spread = KeyDiff(budget=2)
    >>> spread.write([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]], [[1.0], [2.0], [2.0]])
    array([0, 1, 2])
    >>> spread.read([[1.0, 0.0]]).round(3), len(spread)       # the second token has left
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token most like the mean key leaves",
        keeps="tokens far from the mean",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def _settle(self, keys: Floats, before: int) -> Bools:
        alive = np.ones(len(keys), bool)
        barred = np.zeros(len(keys))
        total = keys[:before].sum(axis=0)
        # As fine as can be without error in the products below: twins must tie, so that the older
        # leaves in whatever column it stands.
        grid = 2.0 ** (27 - (self.budget + 1).bit_length())
        for newest in range(before, len(keys)):
            total += keys[newest]
            if newest >= self.budget:
                scores = keys[:newest] @ (np.rint(total * grid) / grid)
                scores += barred[:newest]
                gone = int(scores.argmax())
                total -= keys[gone]
                alive[gone], barred[gone] = False, -np.inf
        return alive
