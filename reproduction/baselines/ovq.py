"""OVQ: online k-means whose number of slots saturates."""

# S slots, D key size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Singles, at_least_one
from .scheduled import ScheduledPeer


class OVQ(ScheduledPeer):
    """``n T / (n + T)`` slots after T tokens, each a running mean (OVQ, arXiv 2602.03922, 2026).

    Online vector-quantised attention. Chunk by chunk, the tokens whose keys are least like any slot
    become slots, and the others move the nearest one by ``1 / count``. A read adds ``log count`` to
    the logit of a slot, so that it weighs as all its tokens would. The number of slots tends to
    ``limit``, whatever the stream holds.

    We deviate: slots are kept as sums, which is the same mean; nothing is learned; a read sees the
    unfinished chunk token by token.

    Of limits from 64 to 256 and chunks from 4 to 64 on the recall task, the default is the smallest
    limit that finds every item.

    >>> ovq = OVQ(limit=4, chunk=4)
    >>> ovq.write(np.eye(2)[[0, 1, 0, 1, 0]], [[1.0], [2.0], [3.0], [4.0], [5.0]])
    array([-1, -1, -1, -1, -1])
    >>> len(ovq), ovq.read(np.eye(2)).round(3).ravel()      # two slots, and one token in the tail
    (3, array([3., 3.]))
    """

    card = Card(
        mechanism="per chunk the most novel tokens open slots, the rest move the nearest mean",
        keeps="a sum of keys, a sum of values and a count in each of S slots; the unfinished chunk",
        growth="to the limit: S = limit L / (limit + L)",
        size="4 (D + C) (S + L % chunk) + 8 S",
    )

    def __init__(self, limit: int = 128, chunk: int = 16, theta: float = 0.05) -> None:
        super().__init__(chunk, theta)
        self.limit = at_least_one("limit", limit)

    def _due(self, n_tokens: int) -> int:
        return self.limit * n_tokens // (self.limit + n_tokens)

    def _slot_keys(self) -> Singles:
        return (self._keys / self._counts[:, None]).astype(np.float32)

    def _bias(self) -> Floats:
        return np.log(self._counts)
