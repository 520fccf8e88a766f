"""Full attention: every token is kept."""

from __future__ import annotations

from .base import Card, Ids, Singles, TokenPeer


class Attention(TokenPeer):
    """A slot for every token (Vaswani et al. 2017), one head, no learned projections.

    ``theta`` is the temperature of the read, the same .05 as for every memory here.

    >>> attention = Attention()
    >>> attention.write([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0], [0.0]])
    array([0, 1, 2])
    >>> attention.read([[1.0, 0.0]]).round(3), len(attention)
    (array([[1.]]), 3)
    """

    card = Card(
        mechanism="softmax over all tokens",
        keeps="every token",
        growth="with the stream, L",
        size="4 L (D + C)",
    )

    def _store(self, keys: Singles, values: Singles) -> Ids:
        return self._append(keys, values)
