"""A sum that forgets."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card
from .state import LinearState, fraction


class DecayedSuperposition(LinearState):
    """The sum of all ``k v^T``, each worth ``decay`` times less with every token after it.

    ``S = decay S + k v^T``: the retention of RetNet (Sun et al. 2023), or a diagonal state-space
    model with one decay for all its channels. We deviate: one head, and a decay that no training
    chose. Mamba's depends on the token, too.

    Where nothing goes out of date forgetting only harms, and of the nine tried from .98 to 1, the
    plain sum does best on the recall stream. Where items are replaced, six and thirty at a time in
    turn, .993 and .995 do; the default is for such streams.

    >>> state = DecayedSuperposition(decay=0.5)
    >>> state.write([[1.0, 0.0], [0.0, 1.0]], [[4.0], [3.0]])
    array([-1, -1])
    >>> state.read([[1.0, 0.0], [0.0, 1.0]])
    array([[2.],
           [3.]])
    """

    card = Card(
        mechanism="one matrix sums all k v^T and fades with every token",
        keeps="no token, only the sum",
        growth="fixed",
        size="4 D C",
    )

    def __init__(self, decay: float = 0.995) -> None:
        super().__init__()
        self.decay = fraction("decay", decay)

    def _absorb(self, keys: Floats, values: Floats) -> None:
        worth = self.decay ** np.arange(len(keys))[::-1, None]
        left = self.decay ** len(keys)
        self._state = (left * self._state + (worth * keys).T @ values).astype(np.float32)
