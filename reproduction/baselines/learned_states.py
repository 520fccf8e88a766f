"""Fixed states fitted to the stream: a Gaussian table, a curve over time, a small network."""

# L tokens, M rows, N waves, H hidden units, D key size, C value size

from __future__ import annotations

from functools import lru_cache

import numpy as np

from distinctkv.rule import Floats, unit

from .base import (
    Baseline,
    Card,
    Float32s,
    Ids,
    State,
    at_least_one,
    fraction,
    positive,
    similarity,
    softmax,
)


class Kanerva(State):
    """A table of ``n_rows`` values, Gaussian with a mean and a covariance, updated by Bayes' rule.

    The Kanerva machine (Wu et al. 2018): a value is seen as ``w`` times the table plus noise, and
    ``w``, its address, says how much each row has to do with the key. A row takes part when its
    fixed random place is on the key's side of the origin, by its cosine: Kanerva's own activation
    (1988) made gradual. We deviate: places are drawn from a seed and not learned, there is no
    encoder, and ``noise`` (a variance, the prior's being 1) is set.

    A key on whose side no place lies is stored nowhere; among 64 that does not happen. On the
    recall stream, of addresses by softmax (five temperatures), by threshold hard or gradual (0 to
    .3) and linear ones, this does best; of 32 to 128 rows, 64 suffice, and noise from .01 to .3
    makes no difference there.

    >>> state = Kanerva(noise=0.25)
    >>> state.write([[1.0, 0.0]], [[1.0]])
    array([-1])
    >>> state.read([[1.0, 0.0]]).round(3)               # 1 / (1 + .25)
    array([[0.8]])
    """

    card = Card(
        mechanism="Bayesian regression of values on addresses, the nearness to random places",
        keeps="no token, only a mean, a covariance and the places",
        growth="fixed",
        size="4 M (M + C + D)",
    )

    def __init__(self, n_rows: int = 64, noise: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.n_rows = at_least_one("n_rows", n_rows)
        self.noise = positive("noise", noise)
        self.seed = seed

    def _init_state(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.n_rows, n_values), np.float32)
        self._covariance = np.eye(self.n_rows, dtype=np.float32)
        self._places = places(width, self.n_rows, self.seed)

    def _update(self, keys: Floats, values: Floats) -> None:
        address = addresses(keys, self._places)  # (L, M)
        shared = address @ self._covariance  # (L, M), of what is seen with each row
        seen = shared @ address.T + self.noise * np.eye(len(keys))  # (L, L), of what is seen
        gain = np.linalg.solve(seen, shared).T  # (M, L)
        self._state += (gain @ (values - address @ self._state)).astype(np.float32)
        self._covariance -= (gain @ shared).astype(np.float32)

    def _read(self, queries: Float32s) -> Floats:
        mean: Floats = addresses(queries.astype(np.float64), self._places) @ self._state
        return mean


def places(width: int, n_rows: int, seed: int) -> Float32s:
    """Random places on the sphere, (M, D), drawn once and held."""
    drawn = np.random.default_rng(seed).standard_normal((n_rows, width))
    return unit(drawn).astype(np.float32)


def addresses(rows: Floats, among: Float32s) -> Floats:
    """How much each of the places is active for a key, (L, D) to (L, M); length one.

    >>> addresses(np.array([[1.0, 0.0], [-1.0, 0.0]]), places(2, n_rows=3, seed=0)).round(2)
    array([[0.57, 0.82, 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    active = np.maximum(rows @ among.T, 0.0)
    length: Floats = np.linalg.norm(active, axis=1, keepdims=True)
    return active / np.where(length > 0, length, 1.0)


def middles(n: int) -> Floats:
    """The middles of n equal parts of [0, 1].

    >>> middles(2)
    array([0.25, 0.75])
    """
    return (np.arange(n) + 0.5) / n


def waves(times: Floats, n_waves: int) -> Floats:
    """The first cosines that fit half periods into [0, 1], at each time, (L, N)."""
    found: Floats = np.cos(np.pi * times[:, None] * np.arange(n_waves))
    return found


# The matrices follow from the settings and the length of the stream: they are the same for every
# memory, and none holds them.
@lru_cache(maxsize=32)
def refit(
    n_waves: int, n_samples: int, block: int, contraction: float, penalty: float
) -> tuple[Floats, Floats]:
    """The matrices by which past coefficients, (N, N), and a block, (N, L), make the new ones."""
    then = middles(n_samples)
    now = contraction + (1 - contraction) * middles(block)
    at = waves(np.concatenate([contraction * then, now]), n_waves)
    fit: Floats = np.linalg.inv(at.T @ at + penalty * np.eye(n_waves)) @ at.T
    return fit[:, :n_samples] @ waves(then, n_waves), fit[:, n_samples:]


class InfFormer(Baseline):
    """Keys and values as functions of time, ``B^T f(t)`` for t in [0, 1], read by attention.

    The infinity-former (Martins et al. 2022). Each ``block`` tokens, the curve is sampled, squeezed
    into the first ``contraction`` of the interval, the block laid out on the rest, and ``B`` fitted
    to both by ridge regression; so what is old fades. At ``None`` the past has room in proportion
    to its tokens, and does not. Tokens that wait for their block are kept whole and read beside the
    curve; they stand for the paper's short-term memory.

    We deviate: keys are fitted, too, where the paper projects the coefficients of the input; the
    density over time is a softmax on a grid, where the paper learns to name a Gaussian; the waves
    are cosines; no sticky memories.

    On the recall stream, at 64 waves, cosines do better than boxes and Gaussians (four widths); of
    contractions from .5 to .9 and ``None``, .7 and .75 do best, the latter that of the authors'
    code; of temperatures from .02 to .2, .08; blocks of 32 and 64 and penalties up to 1 do equally
    well. A block with fewer than ``(1 - contraction) n_waves`` tokens leaves waves unbound, and
    fails. A stream of unlike tokens is no smooth curve: nothing helps as much as more waves.

    >>> curve = InfFormer(n_waves=4, block=4, penalty=1e-6)
    >>> curve.write(np.eye(4)[[0, 1, 2, 3, 0]], [[1.0], [2.0], [3.0], [4.0], [1.0]])
    array([-1, -1, -1, -1, -1])
    >>> curve.read(np.eye(4)).round(), len(curve)       # four waves, and a token that waits
    (array([[1.],
           [2.],
           [3.],
           [4.]]), 5)
    """

    card = Card(
        mechanism="ridge regression of the stream on N waves over time, read by attention",
        keeps="coefficients of the waves, and up to a block of tokens",
        growth="fixed",
        size="at most 4 (N + block) (D + C)",
    )

    def __init__(
        self,
        n_waves: int = 64,
        block: int = 32,
        contraction: float | None = 0.75,
        penalty: float = 0.1,
        theta: float = 0.08,
    ) -> None:
        super().__init__()
        self.n_waves = at_least_one("n_waves", n_waves)
        self.block = at_least_one("block", block)
        if contraction is not None and not 0 < contraction < 1:
            raise ValueError(
                f"contraction must lie between 0 and 1, got {contraction}; "
                "for room in proportion give None"
            )
        self.contraction = contraction
        self.penalty = positive("penalty", penalty)
        self.theta = positive("theta", theta)

    def __len__(self) -> int:
        return len(self._waves) + len(self._waiting) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the coefficients and of the waiting tokens."""
        return self._waves.nbytes + self._waiting.nbytes if self._widths else 0

    def _init_state(self, width: int, n_values: int) -> None:
        self._waves = np.empty((0, width + n_values), np.float32)
        self._waiting = np.empty((0, width + n_values), np.float32)
        self._folded = 0

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        tokens = np.concatenate([self._waiting, np.hstack([keys, values])])
        whole = len(tokens) - len(tokens) % self.block
        for start in range(0, whole, self.block):
            self._refit(tokens[start : start + self.block])
        # A copy: a view would keep the folded tokens in memory.
        self._waiting = tokens[whole:].copy()
        return np.full(len(keys), -1)

    def _refit(self, tokens: Float32s) -> None:
        """Make room in time, and fit the waves to what was and what came."""
        room = self._folded / (self._folded + self.block)
        if self._folded and self.contraction is not None:
            room = self.contraction
        past, new = refit(self.n_waves, self._n_samples, self.block, room, self.penalty)
        folded = new @ tokens
        if self._folded:
            folded += past @ self._waves
        self._waves = folded.astype(np.float32)
        self._folded += self.block

    @property
    def _n_samples(self) -> int:
        # Between its tokens a young curve is bound by nothing: no more samples than tokens.
        return min(self._folded, 2 * self.n_waves)

    def _read(self, queries: Float32s) -> Floats:
        width = queries.shape[1]
        rows = np.concatenate([self._curve(), self._waiting])
        keys, values = rows[:, :width], rows[:, width:]
        length = np.linalg.norm(keys, axis=1, keepdims=True)
        logits = similarity(queries, (keys / np.maximum(length, 1e-12)).astype(np.float32))
        answer: Floats = softmax(logits / self.theta) @ values
        return answer

    def _curve(self) -> Floats:
        """Samples of the past, none before the first fit."""
        return waves(middles(self._n_samples), len(self._waves)) @ self._waves


class Titans(State):
    """A two-layer map from keys to values, ``U^T relu(W k) / sqrt(H)``, one step for each token.

    The neural memory of Titans (Behrouz et al. 2025): what it learns from a token is its surprise,
    the gradient of ``|M(k) - v|^2 / 2``; surprise carries on by ``momentum``, and all weights fade
    by ``decay``. We deviate: Titans learns momentum, decay and step for each token, and takes the
    gradients of a chunk at its start; here they are set, and taken one after the other, so that
    chunks make no difference. ``W`` starts at random, ``U`` at zero.

    A step of 1.5 recalls a little more and diverges on some streams, as a momentum of .9 does.
    Values much longer than 1 need a smaller step; if the weights diverge, the read says so.

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
        hidden: int = 128,
        step: float = 1.0,
        momentum: float = 0.5,
        decay: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.hidden = at_least_one("hidden", hidden)
        self.step = positive("step", step)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
        self.momentum = momentum
        self.decay = fraction("decay", decay)
        self.seed = seed

    def _init_state(self, width: int, n_values: int) -> None:
        self._state = np.zeros((self.hidden, width + n_values), np.float32)
        drawn = np.random.default_rng(self.seed).standard_normal((self.hidden, width))
        self._state[:, :width] = drawn
        self._surprise = np.zeros_like(self._state)

    def _update(self, keys: Floats, values: Floats) -> None:
        weights, surprise = self._state, self._surprise
        singles = keys.astype(np.float32), values.astype(np.float32)
        # Weights that diverge are an error of the next read.
        with np.errstate(over="ignore", invalid="ignore"):
            for key, value in zip(*singles, strict=True):
                surprise *= self.momentum
                surprise -= self.step * gradient(weights, key, value)
                weights *= self.decay
                weights += surprise

    def _read(self, queries: Float32s) -> Floats:
        if not np.isfinite(self._state).all():
            raise ValueError(
                f"the weights have diverged at a step of {self.step}; take a smaller step, or "
                "values of length about 1"
            )
        return forward(self._state, queries)[1].astype(np.float64)


def forward(weights: Float32s, keys: Float32s) -> tuple[Float32s, Float32s]:
    """What the hidden units and the outputs are; a unit's row is ``(W, U)``, (H, D + C)."""
    width = keys.shape[-1]
    active = np.maximum(keys @ weights[:, :width].T, 0) * len(weights) ** -0.5
    return active, active @ weights[:, width:]


def gradient(weights: Float32s, key: Float32s, value: Float32s) -> Float32s:
    """Of ``|M(key) - value|^2 / 2`` by the weights."""
    active, output = forward(weights, key)
    error = output - value
    back = (weights[:, len(key) :] @ error) * (active > 0) * len(weights) ** -0.5
    found = np.empty_like(weights)
    np.multiply.outer(back, key, out=found[:, : len(key)])
    np.multiply.outer(active, error, out=found[:, len(key) :])
    return found
