"""Token eviction: a budget of tokens, and a rule that says which one leaves."""

# l tokens of a block, S kept before it, n kept now, w window

from __future__ import annotations

import numpy as np

from distinctkv.rule import Floats

from .base import (
    Bools,
    Card,
    EvictingBaseline,
    Float32s,
    Ids,
    TokenBaseline,
    at_least_one,
    positive,
    similarity,
    softmax,
)


class Recency(TokenBaseline):
    """The last ``budget`` tokens, read by attention (sliding-window attention).

    The eviction baseline of the paper, and the window of StreamingLLM (Xiao et al. 2023) without
    its sinks. The budget is its one setting.

    >>> window = Recency(budget=2)
    >>> window.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [2.0]])
    array([0, 1, 2])
    >>> window.read([[1.0, 0.0]]), len(window)          # the first token has left
    (array([[2.]]), 2)
    """

    card = Card(
        mechanism="softmax over a sliding window",
        keeps="the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = self._append(keys, values)
        # A copy: a view would keep the evicted rows in memory.
        self._keys = self._keys[-self.budget :].copy()
        self._values = self._values[-self.budget :].copy()
        return ids


class Sinks(TokenBaseline):
    """The first ``sinks`` tokens and, up to the budget, the last ones (StreamingLLM).

    Xiao et al. 2024 found that four first tokens keep a window-attention model stable, because its
    softmax has learned to leave idle mass there; four is their setting and the default, as far as
    a budget has room. Keys here carry no such habit and no positions, so the sinks are slots lent
    to the oldest tokens.

    >>> window = Sinks(budget=2, sinks=1)
    >>> window.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> window.read([[1.0, 0.0], [0.0, 1.0]]).round(3)       # the second token has left
    array([[1.],
           [3.]])
    """

    card = Card(
        mechanism="softmax over the first tokens and a sliding window",
        keeps="the first and the last tokens",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def __init__(self, budget: int, sinks: int | None = None, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.sinks = min(4, self.budget - 1) if sinks is None else sinks
        if not 0 <= self.sinks < budget:
            raise ValueError(f"sinks must lie in [0, budget {budget}), got {sinks}")

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = self._append(keys, values)
        if len(self._keys) > self.budget:
            window = len(self._keys) - self.budget + self.sinks
            kept = np.r_[: self.sinks, window : len(self._keys)]
            self._keys, self._values = self._keys[kept], self._values[kept]
        return ids


# Small matrices: fewer columns per token, and BLAS starts no threads.
_BLOCK = 32


class H2O(TokenBaseline):
    """A budget of tokens; the one with the least accumulated attention leaves (Zhang et al. 2023).

    Each token attends, at temperature ``score_theta``, to the kept tokens and itself, and each of
    those adds its share to its score. The ``recent`` last tokens cannot leave; the published form
    is half the budget, the default. A token that leaves in its own step gets id -1.

    We deviate: one head, the key serves as the query, and a model has no ``score_theta`` to set.
    Of the three settings in study ``recall``, the default .1 without a recent window does best; the
    paper's own number appears at .145, and the published form does worse than either.

    >>> heavy = H2O(budget=2, recent=0)
    >>> heavy.write([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0], [2.0]])
    array([0, 1, 2])
    >>> heavy.read([[1.0, 0.0]]).round(3), len(heavy)
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token with the least accumulated attention leaves",
        keeps="tokens attended most so far, and the most recent",
        growth="to the budget B",
        size="4 B (D + C) + 8 B",
    )

    def __init__(
        self,
        budget: int,
        score_theta: float = 0.1,
        recent: int | None = None,
        theta: float = 0.05,
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.score_theta = positive("score_theta", score_theta)
        self.recent = self.budget // 2 if recent is None else recent
        if not 0 <= self.recent <= budget:
            raise ValueError(f"recent must lie in [0, budget {budget}], got {recent}")

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of their scores."""
        return super().nbytes + (self._scores.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._scores = np.empty(0)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        ids = np.arange(self._tokens, self._tokens + len(keys))
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            ids[block][self._write_block(keys[block], values[block])] = -1
        return ids

    def _write_block(self, keys: Float32s, values: Float32s) -> Ids:
        """Store a block; returns the places in it of tokens that were evicted in their own step."""
        before = len(self._keys)
        self._append(keys, values)
        # A token's similarity to itself is 1, the largest, so no exponent is positive.
        weights = np.exp((similarity(keys, self._keys) - 1) / self.score_theta)  # (l, S + l)
        kept, self._scores, left = scan(weights, self._scores, self.budget, self.recent)
        self._keys, self._values = self._keys[kept], self._values[kept]
        return left - before


def scan(weights: Floats, scores: Floats, budget: int, recent: int) -> tuple[Ids, Floats, Ids]:
    """Which columns are kept, their scores, and which left in their own step.

    Row t of ``weights`` (l, S + l) is what token t, column S + t, grants each column.

    >>> scan(np.array([[1.0, 1.0], [3.0, 1.0]]), np.empty(0), budget=1, recent=0)
    (array([0]), array([1.75]), array([1]))
    """
    n = len(scores)
    room = min(budget + 1, n + len(weights))
    kept, held = np.arange(room), np.zeros(room)
    held[:n] = scores
    left = []
    for column, row in enumerate(weights, start=n):
        kept[n], held[n] = column, 0.0
        n += 1
        shares = row[kept[:n]]
        held[:n] += shares / shares.sum()
        if n > budget:
            loser = int(held[: n - recent].argmin())
            if kept[loser] == column:
                left.append(column)
            n -= 1
            kept[loser:n] = kept[loser + 1 : n + 1]
            held[loser:n] = held[loser + 1 : n + 1]
    return kept[:n], held[:n].copy(), np.array(left, np.int64)


_WINDOW = 32
_MOST = 2**31  # tokens that any machine holds, for a budget that says no limit


class SnapKV(EvictingBaseline):
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
        self.window = fit_window(window, self.budget)
        self.score_theta = positive("score_theta", score_theta)
        # The votes of the window are counted anew for each block.
        self._block = max(32, self.window)

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of the sums that make the window's votes one."""
        return super().nbytes + (self._sums.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._sums = np.empty(0)

    def _evict(self, keys: Floats, before: int) -> Bools:
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


def fit_window(window: int | None, budget: int) -> int:
    """The window, by default 32 or the budget if that is less; an error if it exceeds the budget.

    >>> fit_window(None, budget=8)
    8
    """
    if window is None:
        return min(_WINDOW, budget)
    if not 1 <= window <= budget:
        raise ValueError(f"window must lie in [1, budget {budget}], got {window}")
    return window


class SnapKVOnce(TokenBaseline):
    """SnapKV as published: the whole prompt is kept, and the selection is made at its end.

    The end is here wherever it is read: the last ``window`` tokens vote, and the read attends to
    them and to the ``budget - window`` they attend to most. It holds every token until then, and
    ``len`` and ``nbytes`` say so.

    >>> prompt = SnapKVOnce(budget=2, window=1)
    >>> prompt.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> prompt.chosen()
    array([0, 2])
    """

    card = Card(
        mechanism="the last window of tokens votes once, when the prompt ends",
        keeps="every token of the prompt; reads B",
        growth="with the prompt, L",
        size="4 L (D + C)",
    )

    def __init__(
        self, budget: int, window: int | None = None, score_theta: float = 0.1, theta: float = 0.05
    ) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)
        self.window = fit_window(window, self.budget)
        self.score_theta = positive("score_theta", score_theta)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        return self._append(keys, values)

    def chosen(self) -> Ids:
        """Places of the tokens that a read attends to, in rising order."""
        n, prefix = len(self), max(0, len(self) - self.window)
        votes = np.exp((similarity(self._keys[prefix:], self._keys) - 1) / self.score_theta)
        votes = np.tril(votes, prefix)
        scores = (votes / votes.sum(axis=1, keepdims=True)).sum(axis=0)[:prefix]
        best = np.argsort(-scores, kind="stable")[: self.budget - self.window]
        return np.concatenate([np.sort(best), np.arange(prefix, n)])

    def _read(self, queries: Float32s) -> Floats:
        chosen = self.chosen()
        return softmax(similarity(queries, self._keys[chosen]) / self.theta) @ self._values[chosen]


class TOVA(EvictingBaseline):
    """A budget of tokens; the one that the newest attends to least leaves (Oren et al. 2024).

    "Transformers are multi-state RNNs": token omission via attention, with no window and no sinks
    to protect. We deviate: one head in place of a mean over heads, and the key serves as the query,
    so the least attended token is the least similar one, whatever the temperature. There is
    nothing to set but the budget.

    >>> last = TOVA(budget=2)
    >>> last.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]], [[1.0], [2.0], [1.0]])
    array([0, 1, 2])
    >>> last.read([[0.0, 1.0]]).round(3), len(last)      # the second token has left
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token least attended by the newest one leaves",
        keeps="tokens like the latest",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def _evict(self, keys: Floats, before: int) -> Bools:
        alive = np.ones(len(keys), bool)
        similar = keys[before:] @ keys.T  # (l, S + l)
        # The first token of the block that is one too many; each from there on makes one leave.
        for t in range(max(0, self.budget - before), len(similar)):
            # The newest token is most like itself; of equals the oldest leaves.
            gone = int(similar[t, : before + t + 1].argmin())
            alive[gone] = False
            similar[t + 1 :, gone] = np.inf
        return alive


class KeyDiff(EvictingBaseline):
    """A budget of tokens; the one whose key is most like the mean of the kept keys leaves.

    KeyDiff (Park et al. 2025), with unit keys in the mean. We deviate: a token leaves at each step
    and not a block at a time, and the newest stays for its own step. The budget is its one
    setting. Where items lie in all directions the mean says little about who has a twin;
    `Redundancy` asks that directly.

    >>> spread = KeyDiff(budget=2)
    >>> spread.write([[1.0, 0.0], [0.0, 1.0], [0.1, 1.0]], [[1.0], [2.0], [2.0]])
    array([0, 1, 2])
    >>> spread.read([[1.0, 0.0]]).round(3), len(spread)       # the second token has left
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="the token most like the mean key leaves",
        keeps="tokens far from the mean",
        growth="to the budget B",
        size="4 B (D + C)",
    )

    def _evict(self, keys: Floats, before: int) -> Bools:
        alive = np.ones(len(keys), bool)
        barred = np.zeros(len(keys))
        total = keys[:before].sum(axis=0)
        # As fine as can be without error in the products below: twins must tie, so that the older
        # leaves in whatever column it stands.
        grid = 2.0 ** (27 - (self.budget + 1).bit_length())
        for newest in range(before, len(keys)):
            total += keys[newest]
            if newest >= self.budget:
                scores = keys[:newest] @ (np.rint(total * grid) / grid)
                scores += barred[:newest]
                gone = int(scores.argmax())
                total -= keys[gone]
                alive[gone], barred[gone] = False, -np.inf
        return alive


class Redundancy(EvictingBaseline):
    """A budget of tokens; of the two most similar ones the older leaves.

    The strongest form we know of eviction by key similarity, the family of KeyDiff (Park et al.
    2025): that scores a key against the mean of all (see `KeyDiff`), this one against its nearest
    neighbour, so that a token leaves when a newer one says the same. It mirrors the cache, which
    keeps the older of two; unlike the cache it needs a budget, its one setting.

    Each token carries the similarity of its nearest newer token and the place of that one. A token
    that leaves makes some of these too high; a bound is recomputed when it becomes the highest.

    >>> distinct = Redundancy(budget=2)
    >>> distinct.write([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]])
    array([0, 1, 2])
    >>> distinct.read([[1.0, 0.0], [0.0, 1.0]]).round(3)     # the second token has left
    array([[1.],
           [3.]])
    """

    card = Card(
        mechanism="of the two most similar tokens the older leaves",
        keeps="tokens unlike each other",
        growth="to the budget B",
        size="4 B (D + C) + 16 B",
    )

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values, and of what each knows of its nearest."""
        return super().nbytes + (self._bound.nbytes + self._twin.nbytes if self._widths else 0)

    def _init_state(self, width: int, n_values: int) -> None:
        super()._init_state(width, n_values)
        self._bound = np.empty(0)
        self._twin: Ids = np.empty(0, np.int64)  # -1: it has left

    def _evict(self, keys: Floats, before: int) -> Bools:
        n_new = len(keys) - before
        alive = np.ones(len(keys), bool)
        bound = np.concatenate([self._bound, np.full(n_new, -np.inf)])
        twin = np.concatenate([self._twin, np.full(n_new, -1)])
        similar = keys[before:] @ keys.T  # (l, S + l)
        for t in range(n_new):
            newest = before + t
            row = similar[t, :newest]
            closer = np.flatnonzero(row > bound[:newest])
            bound[closer], twin[closer] = row[closer], newest
            if newest >= self.budget:
                gone = most_redundant(keys[: newest + 1], bound, twin, alive)
                alive[gone], bound[gone] = False, -np.inf
                similar[t + 1 :, gone] = -np.inf
        place = np.where(alive, np.cumsum(alive) - 1, -1)
        self._bound, self._twin = bound[alive], np.where(twin < 0, -1, place[twin])[alive]
        return alive


def most_redundant(keys: Floats, bound: Floats, twin: Ids, alive: Bools) -> int:
    """The token with the nearest newer neighbour, the oldest of equals; updates bounds.

    >>> keys = np.eye(2)[[0, 1, 1]]
    >>> bound, twin = np.array([0.0, 1.0, -np.inf]), np.array([1, 2, -1])
    >>> most_redundant(keys, bound, twin, np.ones(3, bool))
    1
    """
    while True:
        first = int(bound.argmax())
        if twin[first] >= 0 and alive[twin[first]]:
            return first
        similar = np.where(alive[first + 1 : len(keys)], keys[first + 1 :] @ keys[first], -np.inf)
        nearest = int(similar.argmax())
        bound[first], twin[first] = similar[nearest], first + 1 + nearest
