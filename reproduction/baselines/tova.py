"""Last-query eviction: the token that the newest one attends to least leaves."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card
from .evicting import Bools, EvictingPeer


class TOVA(EvictingPeer):
    """A budget of tokens; the one that the newest attends to least leaves (Oren et al. 2024).

    "Transformers are multi-state RNNs": token omission via attention, with no window and no sinks
    to protect. We deviate: one head in place of a mean over heads, and the key serves as the query,
    so the least attended token is the least similar one, whatever the temperature. There is
    nothing to set but the budget.

    >>> last = TOVA(budget=2)
    >>> last.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]], [[1.0], [2.0], [1.0]])
    array([0, 1, 2])
    >>> last.read([[0.0, 1.0]]).round(3), len(last)      # the second token has left
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token least attended by the newest one leaves",
        keeps="tokens like the latest",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def _settle(self, keys: Floats, before: int) -> Bools:
        alive = np.ones(len(keys), bool)
        similar = keys[before:] @ keys.T  # (l, S + l)
        # The first token of the block that is one too many; each from there on makes one leave.
        for t in range(max(0, self.budget - before), len(similar)):
            # The newest token is most like itself; of equals the oldest leaves.
            gone = int(similar[t, : before + t + 1].argmin())
            alive[gone] = False
            similar[t + 1 :, gone] = np.inf
        return alive
