"""A state of fixed size that adds everything up."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Peer, Singles


class Superposition(Peer):
    """One matrix, the sum of all ``k v^T``, read by ``q`` (the paper's fixed-state floor).

    Linear attention without a feature map (Katharopoulos et al. 2020), or a diagonal state-space
    model that forgets nothing. The paper calls its floor "diagonal SSM, S4D-style" and does not
    give the update; this one reaches its number. It has nothing to set.

    No token has a slot of its own, so every id is -1. The paper counts the rows of the state, one
    per dimension of a key, as slots, and so does ``len``; ``nbytes`` is the fair measure.

    >>> state = Superposition()
    >>> state.write(np.eye(3), [[1.0], [2.0], [3.0]])
    array([-1, -1, -1])
    >>> state.read(np.eye(3)[1:2])
    array([[2.]])
    """

    card = Card(
        mechanism="one matrix sums all k v^T",
        keeps="no token, only the sum",
        growth="fixed",
        size="4 D C",
    )

    def __len__(self) -> int:
        return len(self._state) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the state, the same however long the stream."""
        return self._state.nbytes if self._widths else 0

    def _start(self, width: int, n_values: int) -> None:
        self._state = np.zeros((width, n_values), np.float32)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        self._state += keys.T @ values
        return np.full(len(keys), -1)

    def _answer(self, queries: Singles) -> Floats:
        return (queries @ self._state).astype(np.float64)
