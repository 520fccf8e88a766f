"""The past as a curve: a few waves over time, fitted again as the stream goes on."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, Ids, Peer, Singles, at_least_one, positive, real, similarity, softmax
from .curve import middles, refit, waves


class InfFormer(Peer):
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
        if contraction is not None and not 0 < real("contraction", contraction) < 1:
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

    def _start(self, width: int, n_values: int) -> None:
        self._waves = np.empty((0, width + n_values), np.float32)
        self._waiting = np.empty((0, width + n_values), np.float32)
        self._folded = 0

    def _store(self, keys: Singles, values: Singles) -> Ids:
        tokens = np.concatenate([self._waiting, np.hstack([keys, values])])
        whole = len(tokens) - len(tokens) % self.block
        for start in range(0, whole, self.block):
            self._fold(tokens[start : start + self.block])
        # A copy: a view would keep the folded tokens in memory.
        self._waiting = tokens[whole:].copy()
        return np.full(len(keys), -1)

    def _fold(self, tokens: Singles) -> None:
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

    def _answer(self, queries: Singles) -> Floats:
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
