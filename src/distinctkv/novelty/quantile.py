"""A threshold that a given share of the recent past stayed below."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from math import ceil, inf

import numpy as np

from ..policy import check_real


class Quantile:
    """The ``share`` quantile of the last ``window`` numbers, on the safe side.

    If the next number is drawn as these were, it is above the threshold with a chance of at most
    ``1 - share``: the rank is that of n + 1 numbers, and infinite while there are too few of them.

    >>> past = Quantile(0.75, window=4)
    >>> for number in (1.0, 2.0, 3.0):
    ...     past.add(number)
    >>> past.threshold
    3.0
    """

    def __init__(self, share: float, window: int, numbers: Iterable[float] = ()) -> None:
        check_real("quantile", share)
        if not 0 < share < 1:
            raise ValueError(f"quantile must lie in (0, 1), got {share}; .99 alerts 1 row in 100")
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
            raise ValueError(f"window must be a whole number of rows, 1 or more, got {window!r}")
        window = int(window)
        if ceil(share * (window + 1)) > window:
            raise ValueError(
                f"a window of {window} rows is too short for the quantile {share:g}; "
                f"it takes at least {ceil(share / (1 - share))}"
            )
        self.share, self.window = float(share), window
        self.recent = deque(numbers, maxlen=window)
        self._sorted = sorted(self.recent)

    @property
    def threshold(self) -> float:
        """What the next number is compared with."""
        rank = ceil(self.share * (len(self._sorted) + 1))
        return self._sorted[rank - 1] if rank <= len(self._sorted) else inf

    def add(self, number: float) -> None:
        """Take in a number, and forget the oldest if there are too many."""
        if len(self.recent) == self.window:
            del self._sorted[bisect_left(self._sorted, self.recent[0])]
        self.recent.append(number)
        insort(self._sorted, number)

    def absorb(self, other: Quantile) -> None:
        """Take in the numbers of another, as if they had followed."""
        self.recent.extend(other.recent)
        self._sorted = sorted(self.recent)
