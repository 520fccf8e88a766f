"""A small network that learns the stream by gradient steps while it reads it."""

# H hidden units, D key size, C value size

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Singles, at_least_one, positive, real, seeded
from .state import State, fraction


class Titans(State):
    """A two-layer map from keys to values, ``U^T relu(W k) / sqrt(H)``, one step for each token.

    The neural memory of Titans (Behrouz et al. 2025): what it learns from a token is its surprise,
    the gradient of ``|M(k) - v|^2 / 2``; surprise carries on by ``momentum``, and all weights fade
    by ``decay``. We deviate: Titans learns momentum, decay and step for each token, and takes the
    gradients of a chunk at its start; here they are set, and taken one after the other, so that
    chunks make no difference. ``W`` starts at random, ``U`` at zero.

    On the recall stream, of steps from .05 to 2 and momenta from 0 to .9, these do best at 64
    hidden units, and are not far from diverging (a step of 2, or a momentum of .7); 128 units do
    better, SiLU does no better than ReLU, and decay only harms (five from .99 to 1). Values much
    longer than 1 need a smaller step; if the weights diverge, the read says so.

    >>> memory = Titans()
    >>> memory.write(np.eye(3)[[0, 1, 2] * 20], np.eye(3)[[2, 0, 1] * 20])[:3]
    array([-1, -1, -1])
    >>> memory.read(np.eye(3)).argmax(axis=1)
    array([2, 0, 1])
    """

    card = Card(
        mechanism="gradient steps with momentum on a two-layer map from keys to values",
        keeps="no token, only the H hidden units' weights and their momentum",
        growth="fixed",
        size="8 H (D + C)",
    )

    def __init__(
        self,
        hidden: int = 64,
        step: float = 1.5,
        momentum: float = 0.5,
        decay: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.hidden = at_least_one("hidden", hidden)
        self.step = positive("step", step)
        if not 0 <= real("momentum", momentum) < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
        self.momentum = float(momentum)
        self.decay = fraction("decay", decay)
        self.seed = seeded(seed)

    def _start(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.hidden, width + n_values), np.float32)
        drawn = np.random.default_rng(self.seed).standard_normal((self.hidden, width))
        self._state[:, :width] = drawn
        self._surprise = np.zeros_like(self._state)

    def _absorb(self, keys: Floats, values: Floats) -> None:
        weights, surprise = self._state, self._surprise
        singles = keys.astype(np.float32), values.astype(np.float32)
        # Weights that diverge are refused where they would be noticed, at the read.
        with np.errstate(over="ignore", invalid="ignore"):
            for key, value in zip(*singles, strict=True):
                surprise *= self.momentum
                surprise -= self.step * gradient(weights, key, value)
                weights *= self.decay
                weights += surprise

    def _answer(self, queries: Singles) -> Floats:
        if not np.isfinite(self._state).all():
            raise ValueError(
                f"the weights have diverged at a step of {self.step}; take a smaller step, or "
                "values of length about 1"
            )
        return forward(self._state, queries)[1].astype(np.float64)


def forward(weights: Singles, keys: Singles) -> tuple[Singles, Singles]:
    """What the hidden units and the outputs are; a unit's row is ``(W, U)``, (H, D + C)."""
    width = keys.shape[-1]
    active = np.maximum(keys @ weights[:, :width].T, 0) * len(weights) ** -0.5
    return active, active @ weights[:, width:]


def gradient(weights: Singles, key: Singles, value: Singles) -> Singles:
    """Of ``|M(key) - value|^2 / 2`` by the weights."""
    active, output = forward(weights, key)
    error = output - value
    back = (weights[:, len(key) :] @ error) * (active > 0) * len(weights) ** -0.5
    found = np.empty_like(weights)
    np.multiply.outer(back, key, out=found[:, : len(key)])
    np.multiply.outer(active, error, out=found[:, len(key) :])
    return found
