"""KVM: slots grow with the root of the stream, the most novel tokens first."""

# S slots, D key size

from __future__ import annotations

import numpy as np

from .base import Card, Singles, positive
from .scheduled import ScheduledPeer


class KVM(ScheduledPeer):
    """``factor sqrt(T)`` slots after T tokens; the rest merge by sum (KVM, arXiv 2605.09877, 2026).

    Chunk by chunk, the tokens whose keys are least like any slot are appended, and the others are
    added to the slot most like them: a winner takes key and value whole. The count is a matter of
    time, whatever the stream holds. A slot's key is its sum scaled to length one, as the source
    normalises it, and its value the mean.

    We deviate: no sink, no learned merge gate, no position in the keys, and the window of exact
    tokens is the unfinished chunk, where the source has two chunks of 256. The first chunk becomes
    slots whole, as in the source.

    The source has ``factor`` = 16, a slot for every one of 256 tokens. Of 2 to 16 and chunks from 4
    to 64 on the recall task, the default is the smallest that finds nearly every item; in a
    longer chunk more repeats of one item are appended side by side.

    >>> kvm = KVM(factor=1, chunk=2)
    >>> kvm.write(np.eye(3)[[0, 1, 0, 1, 2]], [[1.0], [2.0], [3.0], [4.0], [9.0]])
    array([-1, -1, -1, -1, -1])
    >>> len(kvm), kvm.read(np.eye(3)).round(3).ravel()      # two slots, and one token in the tail
    (3, array([2., 3., 9.]))
    """

    card = Card(
        mechanism="per chunk the most novel tokens are appended, the rest summed into the nearest",
        keeps="a sum of keys, a sum of values and a count in each of S slots; the unfinished chunk",
        growth="with the root of the stream: S = factor sqrt(L)",
        size="4 (D + C) (S + L % chunk) + 8 S",
    )

    def __init__(self, factor: float = 5.5, chunk: int = 16, theta: float = 0.05) -> None:
        super().__init__(chunk, theta)
        self.factor = positive("factor", factor)

    def _due(self, n_tokens: int) -> int:
        return max(int(self.factor * np.sqrt(n_tokens)), self.chunk)

    def _slot_keys(self) -> Singles:
        lengths = np.sqrt((self._keys**2).sum(axis=1, keepdims=True))
        # Opposite keys cancel; a slot without direction is like nothing.
        units: Singles = self._keys / np.maximum(lengths, np.float32(1e-6))
        return units
