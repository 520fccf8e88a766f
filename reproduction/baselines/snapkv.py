"""Window-voted eviction: the tokens that the last window of queries attends to are kept."""

# l tokens of a block, S kept before it, w window

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import Card, positive, whole
from .evicting import Bools, EvictingPeer

_WINDOW = 32
_MOST = 2**31  # tokens that any machine holds, for a budget that says no limit


class SnapKV(EvictingPeer):
    """A budget of tokens; the one least attended by the last ``window`` tokens leaves.

    SnapKV (Li et al. 2024) for a stream without end. Each token attends, at temperature
    ``score_theta``, to the kept tokens and itself; a token's score is the attention it got from
    the last ``window`` ones, which cannot leave themselves. The published form decides only once,
    see `SnapKVOnce`. We deviate in both: one head, the key serves as the query, and no pooling over
    neighbouring positions, which in a shuffled stream have nothing to do with each other.

    Li et al. use windows of 16 to 64; the default is 32, or the budget where that is less. Here a
    longer one does better, up to the whole budget, where it is `Recency`; the temperature
    hardly matters.

    >>> voted = SnapKV(budget=3, window=1)
    >>> keys = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.1]]
    >>> voted.write(keys, [[1.0], [2.0], [3.0], [1.0]])
    array([0, 1, 2, 3])
    >>> voted.read([[0.0, 1.0]]).round(3)                    # the second token has left
    array([[3.]])
    """

    card = Card(
        mechanism="the token least attended by the last window of tokens leaves",
        keeps="the last window, and tokens like it",
        growth="to the budget B",
        size="4 B (D + C) + 8 window",
    )

    def __init__(
        self, budget: int, window: int | None = None, score_theta: float = 0.1, theta: float = 0.05
    ) -> None:
        super().__init__(budget, theta)
        self.window = fitting(window, self.budget)
        self.score_theta = positive("score_theta", score_theta)
        # The votes of the window are counted anew for each block.
        self._block = max(32, self.window)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of the sums that make the window's votes one."""
        return super().nbytes + (self._sums.nbytes if self._widths else 0)

    def _start(self, width: int, n_values: int) -> None:
        super()._start(width, n_values)
        self._sums = np.empty(0)

    def _settle(self, keys: Floats, before: int) -> Bools:
        alive = np.ones(len(keys), bool)
        n_old = len(self._sums)  # of the window
        votes = self._votes(keys, before - n_old)
        # Whole numbers below 2^53 add up without error, so a running sum forgets without a trace.
        unit = 2.0 ** (52 - self.window.bit_length())
        votes[:n_old] = np.rint(votes[:n_old] / self._sums[:, None] * unit)
        scores = votes[:n_old].sum(axis=0)
        sums = list(self._sums)
        for row, newest in enumerate(range(before, len(keys)), start=n_old):
            sums.append(votes[row].sum())
            votes[row] = np.rint(votes[row] / sums[row] * unit)
            scores += votes[row]
            if row >= self.window:
                scores -= votes[row - self.window]
            if newest >= self.budget:
                gone = int(scores[: newest + 1 - self.window].argmin())
                alive[gone], scores[gone] = False, np.inf
                votes[row + 1 :, gone] = 0.0
        self._sums = np.array(sums[-self.window :])
        return alive

    def _votes(self, keys: Floats, first: int) -> Floats:
        """Weights that tokens from column ``first`` on grant to columns no newer than themselves.

        They too are whole numbers, so that a row's sum does not depend on columns long dead.
        """
        similar = keys[first:] @ keys.T  # (w + l, S + l)
        weights = np.exp((similar - 1) / self.score_theta)
        weights *= 2.0 ** (52 - (min(self.budget, _MOST) + 1).bit_length())
        return np.tril(np.rint(weights, out=weights), first)


def fitting(window: int | None, budget: int) -> int:
    """A window that the budget has room for, or a refusal.

    >>> fitting(None, budget=8)
    8
    """
    if window is None:
        return min(_WINDOW, budget)
    if not 1 <= whole("window", window) <= budget:
        raise ValueError(f"window must lie in [1, budget {budget}], got {window}")
    return int(window)
