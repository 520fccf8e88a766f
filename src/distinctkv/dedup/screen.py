"""A short product that rules out nearly all slots, so that few are compared in full.

A key x is split by an orthonormal R into its head h = R'x and a tail of length t. By Cauchy and
Schwarz x.k <= h.h' + t t', so a slot whose bound is below the threshold cannot be a repeat. R
turns to where the keys lie (their principal directions), and is as short as the keys allow.
"""

# L rows, S slots, D key size, H numbers of a head, its tail among them

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engines.bounds import SINGLE
from ..rule import Keys

Heads = NDArray[np.float32]
LENGTHS = (15, 31, 63, 127, 255)  # of heads, the tail apart
ENOUGH = 256  # slots from which on a screen pays
SAMPLE = 1024  # slots that it is fitted to
ROOM = 512  # slots to make room for at a time
PAIR = 12  # a slot compared in full costs as much as so many in the short product, per number


class Screen:
    """Heads of slots, in the order of their ids."""

    def __init__(self, tau: float, width: int) -> None:
        self.width, self.low = width, 1 - tau
        self.margin = 16 * (width + LENGTHS[-1]) * SINGLE  # more than float32 can be wrong by
        # Else the threshold is too fine for float32, and all must be compared by the law.
        self.usable = (width + 16) * SINGLE <= tau / 64
        self.cut = float(np.float32(self.low - self.margin))  # bounds below it rule out
        self._fitted = 0  # slots ever opened when it was fitted
        self.worthwhile = False  # whether it spares at least half of the work
        self.turn = np.empty((width, 0), np.float32)
        self.table = np.empty((1, 0), np.float32)  # heads in columns

    @property
    def ready(self) -> bool:
        """Whether there are heads to compare with."""
        return self._fitted > 0

    def due(self, n_slots: int, born: int) -> bool:
        """Whether it is time to fit it: to many slots, and again when four times more came."""
        return n_slots >= ENOUGH and born >= 4 * self._fitted and self.usable

    def fit(self, keys: Keys, born: int) -> None:
        """Turn to the principal directions of the keys, by two steps of a power iteration."""
        some = keys[:: -(-len(keys) // SAMPLE)]
        most = min(LENGTHS[-1], self.width // 2 + 1)  # longer ones would spare too little
        start = np.random.default_rng(0).standard_normal((self.width, most))
        turn = start.astype(np.float32)
        for _ in range(2):
            turn = np.linalg.qr((some.T @ (some @ turn)).astype(np.float64))[0].astype(np.float32)
        within = (some @ turn).astype(np.float64)
        order = np.linalg.eigh(within.T @ within)[1][:, ::-1]
        self.turn = self._shortest((turn.astype(np.float64) @ order).astype(np.float32), some)
        self._fitted = born
        self.table = np.empty((self.turn.shape[1] + 1, 0), np.float32)
        self.put(self.heads(keys), 0)

    def heads(self, keys: Keys) -> Heads:
        """Heads (L, H) of keys."""
        return self._split(keys, self.turn)

    def put(self, heads: Heads, start: int) -> None:
        """Note the heads of the slots from ``start`` on."""
        stop = start + len(heads)
        if stop > self.table.shape[1]:
            wide = np.empty((heads.shape[1], stop + stop // 4 + ROOM), np.float32)
            wide[:, :start] = self.table[:, :start]
            self.table = wide
        self.table[:, start:stop] = heads.T

    def bounds(self, heads: Heads, slots: slice) -> Heads:
        """None of these slots is more similar to a row than this (L, S)."""
        bounds: Heads = heads @ self.table[:, slots]
        return bounds

    def _split(self, keys: Keys, turn: Heads) -> Heads:
        """Heads of keys; the tail is never too short."""
        heads = np.empty((len(keys), turn.shape[1] + 1), np.float32)
        np.matmul(keys, turn, out=heads[:, :-1])
        squares = np.einsum("ij,ij->i", heads[:, :-1], heads[:, :-1])
        np.maximum(1 - squares, 0, out=squares)
        heads[:, -1] = np.sqrt(squares + np.float32(self.margin))
        return heads

    def _shortest(self, turn: Heads, keys: Keys) -> Heads:
        """The shortest part of a turn for which few pairs of keys need a full comparison."""
        costs = {}
        for length in sorted({turn.shape[1], *(n for n in LENGTHS if n < turn.shape[1])}):
            heads = self._split(keys, np.ascontiguousarray(turn[:, :length]))
            left = float((heads[:256] @ heads.T >= self.low - self.margin).mean())
            costs[length] = length + PAIR * left * self.width
        self.worthwhile = min(costs.values()) < self.width / 2
        return np.ascontiguousarray(turn[:, : min(costs, key=costs.__getitem__)])
