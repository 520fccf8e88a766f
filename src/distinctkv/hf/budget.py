"""The size of a cache: when tokens merge, and the threshold that keeps each sequence in bounds."""

# B sequences

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from itertools import count
from math import ceil, exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import torch

from .config import RECENT, CacheConfig
from .merge import Coarsening, LayerGroup, groups

if TYPE_CHECKING:
    from .cache import DistinctCache

# Tokens that come one by one and wait to be merged together: more where launches count.
BLOCK, BLOCK_CUDA = 16, 64
MIN_RECENT, RECENT_PART = 8, 8  # the window is this part of a small size, but no less
CLOSE = 0.98  # a search ends when this part of the slots allowed is used
MAX_STEP = 16.0  # a search moves the threshold by no more than this factor
MIN_SLOPE, MAX_SLOPE = 0.005, 32.0  # assumed power by which slots fall with the threshold
LOWEST, HIGHEST = 1e-9, 1e12  # thresholds that are tried
SAME = 0.99  # this part of the slots counts as all, if every threshold leaves too few
ROUGH, EVERY, LARGE = 0.95, 4, 2**20  # first search, in one head of four, if slots are many
RENEW = 0.25  # new tokens are many if they are this part of the slots of a head
LITTLE = 0.95  # a threshold falls while less than this part of what is allowed is held
SLACK = 0.95  # a budget that is reached repeatedly is met with some room


class End(NamedTuple):
    """Where a search ended; if no threshold leaves few enough, more slots than the goal."""

    threshold: float
    number: int  # of the count that tried it
    slope: float  # power by which slots fall there
    slots: int


Search = Generator[float, int, tuple[float, float]]


def least_threshold(slots: Callable[[float], int], goal: int, start: float = 1.0) -> float:
    """The least threshold, to a few per cent, that leaves at most ``goal`` slots.

    Each call of ``slots`` is a pass over all keys, so the next threshold is where a power law
    through the last two would meet the goal, within the bracket known so far.

    >>> round(least_threshold(lambda at: int(1000 / at), 100), 1)
    10.1
    """
    return run({0: search(goal, start)}, lambda at: [[slots(at[0])]])[0].threshold


def search(goal: int, start: float, slope: float = 1.0, close: float = CLOSE) -> Search:
    """`least_threshold` as a coroutine: yields thresholds, is sent the slots left at each.

    Ends with a threshold, and with the power by which slots fall there.
    """
    aim = log((1 + close) / 2 * goal)  # halfway between enough and all
    low = high = None  # too many slots, few enough: threshold, and logs of it and of the slots
    few = []  # every threshold that leaves few enough, and the slots
    at, slow = start, 0
    left = yield at
    while (left > goal and at < HIGHEST) or (left < close * goal and at > LOWEST):
        here = (at, log(at), log(max(left, 1)))
        if left > goal:
            low = here
        else:
            high = here
            few.append((at, left))
        if low is None or high is None:
            gap = inf
            to = here[1] + min(max((here[2] - aim) / slope, -log(MAX_STEP)), log(MAX_STEP))
        else:
            gap = high[1] - low[1]
            if gap <= log(1.01):
                return high[0], slope
            # Bisect after the power law has twice failed to halve the bracket.
            halve = slow == 2 or low[2] <= high[2]
            part = 0.5 if halve else (low[2] - aim) / (low[2] - high[2])
            to = low[1] + gap * min(max(part, 0.05), 0.95)
        at = exp(to)
        left = yield at
        slope = min(max((here[2] - log(max(left, 1))) / (to - here[1]), MIN_SLOPE), MAX_SLOPE)
        if low is not None and high is not None:
            rest = high[1] - to if left > goal else to - low[1]
            slow = 0 if slow == 2 or rest <= gap / 2 else slow + 1
    if low is None and left < close * goal:
        # No threshold leaves more: the largest that leaves as many.
        return max([to for to, then in few if then >= SAME * left], default=at), slope
    return (at if left <= goal or high is None else high[0]), slope


def run(
    searches: dict[int, Search], count_slots: Callable[[dict[int, float]], list[list[int]]]
) -> dict[int, End]:
    """Run the searches of all sequences side by side: each count serves all of them.

    ``count_slots`` takes a threshold for each sequence and returns rows that add up to its slots.
    """
    at = {sequence: next(one) for sequence, one in searches.items()}
    tried: dict[tuple[int, float], tuple[int, int]] = {}
    found = {}
    for number in count():
        left = [sum(each) for each in zip(*count_slots(at), strict=True)]
        tried |= {(sequence, to): (number, left[sequence]) for sequence, to in at.items()}
        for sequence in list(at):
            try:
                at[sequence] = searches[sequence].send(left[sequence])
            except StopIteration as end:
                threshold, slope = end.value
                number_then, left_then = tried[sequence, threshold]
                found[sequence] = End(threshold, number_then, slope, left_then)
                del at[sequence]
        if not at:
            break
    return found


class BudgetController:
    """The threshold of each sequence; decides when tokens merge, and merges slots if too many."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self.max_recent, self.min_size = config.max_recent, config.min_size
        self.thresholds: list[float | None] = []
        self.renewed: set[int] = set()  # sequences whose threshold this pass searches anew

    def start(self, batch: int) -> None:
        """Nothing seen."""
        self.thresholds = [self.config.threshold] * batch

    def restore(self, thresholds: list[float | None]) -> None:
        """Continue with saved thresholds."""
        self.thresholds = thresholds

    def select(self, sequences: list[int]) -> None:
        """Keep, repeat or reorder sequences."""
        self.thresholds = [self.thresholds[b] for b in sequences]

    def recent(self, tokens: int) -> int:
        """Newest tokens of a text of so many that are not merged yet.

        >>> [BudgetController(CacheConfig(kept=1 / n)).recent(1024) for n in (4, 8, 16, 32)]
        [32, 16, 8, 32]
        """
        config = self.config
        size = config.kept * tokens if config.kept is not None else config.budget
        if config.recent is not None or size is None or size < self.min_size:
            return self.max_recent
        return min(RECENT, max(MIN_RECENT, int(size) // RECENT_PART))

    def n_to_merge(self, cache: DistinctCache, length: int) -> int:
        """Columns to merge after a pass of so many tokens; 0 if they may wait."""
        assert cache.batch is not None
        tokens, window = cache.batch.tokens(), cache.layers[0].window_length
        recent = self.max_recent if cache.has_drafts else self.recent(max(tokens))
        # A text that was too short to merge until now does not wait for more.
        begins = any(self._can_merge(n) and not self._can_merge(n - length) for n in tokens)
        least = 1 if length > 1 or begins else self.block(cache)
        return window - recent if cache.merges and window - recent >= least else 0

    def block(self, cache: DistinctCache) -> int:
        """Tokens that come one by one and are merged together."""
        return BLOCK if cache.layers[0].keys.is_cpu else BLOCK_CUDA

    def _can_merge(self, tokens: int) -> bool:
        kept = self.config.kept
        return kept is not None and kept * tokens >= self.min_size

    def min_length(self, sequence: int) -> int:
        """Tokens from which on a share leaves slots beside the window; 0 once something merged."""
        if self.config.kept in (None, 1.0) or self.thresholds[sequence] is not None:
            return 0
        return ceil(self.min_size / self.config.kept)

    def current(self, cache: DistinctCache, columns: int) -> list[float | None]:
        """The thresholds to merge so many columns by; None: each token opens a slot.

        The threshold of a share of a text is not that of more of it: where many tokens come beside
        few slots, all open slots, which then merge until the share is met.
        """
        self.renewed = set()
        if self.config.kept is not None:
            most = columns * cache.n_heads / RENEW
            self.renewed = {b for b, held in enumerate(cache.n_slots_each()) if held <= most}
        return [None if b in self.renewed else at for b, at in enumerate(self.thresholds)]

    def settle(self, cache: DistinctCache) -> None:
        """After tokens have merged: merge slots until each sequence is within its size."""
        if self.config.threshold is not None:
            return
        goals, allowed = self._goals(cache)
        if not goals:
            return
        searches = {b: search(goals[b], *guess) for b, guess in self._guesses(cache, goals).items()}
        parts = self._coarsenings(cache, groups(cache.layers))

        def count_slots(at: dict[int, float]) -> list[list[int]]:
            # All are launched before the first is synchronised with.
            left = [part.count(at) for part in parts]
            return [each.tolist() for each in left]

        found = run(searches, count_slots)
        for b in [b for b, end in found.items() if end.slots > allowed[b]]:
            warnings.warn(
                f"sequence {b}: cannot reach {self.config.size}; {found.pop(b).slots} slots remain "
                "at every threshold. More is held; give a larger size",
                stacklevel=2,
            )
        for part in parts:
            part.apply({b: end.number for b, end in found.items()})
        for b, end in found.items():
            if end.slots <= goals[b]:
                before = None if b in self.renewed else self.thresholds[b]
                self.thresholds[b] = max(end.threshold, before or 0.0)

    def _goals(self, cache: DistinctCache) -> tuple[dict[int, int], dict[int, int]]:
        """Slots to search for, and slots allowed, of each sequence that holds too many."""
        goals, most = {}, {}
        slots = cache.n_slots_each()
        for b, before in enumerate(self.thresholds):
            if self.config.kept is not None and self._size(cache, b) < self.config.sinks + 1:
                continue  # so short a text leaves no slots beside the window
            fewest = cache.n_heads * (min(self.config.sinks, cache.tokens(b)) + 1)
            allowed = max(int(self._size(cache, b) * cache.n_heads), fewest)
            if slots[b] > allowed:
                most[b] = goals[b] = allowed
                if before is not None and b not in self.renewed:
                    goals[b] = max(int(SLACK * allowed), fewest)
            elif before is not None and self.config.kept and slots[b] < LITTLE * allowed:
                # The text has grown, and with it what is allowed: merge less from now on.
                self.thresholds[b] = max(before * max(slots[b] / allowed, 0.5), LOWEST)
        return goals, most

    def _size(self, cache: DistinctCache, sequence: int) -> float:
        """Slots of a head that the config asks for, beside the window."""
        kept = self.config.kept
        size = float(self.config.budget or 0) if kept is None else kept * cache.tokens(sequence)
        return size - cache.in_window(sequence)

    def _coarsenings(self, cache: DistinctCache, parts: list[list[int]]) -> list[Coarsening]:
        horizon = self.config.merge.horizon
        made = [LayerGroup(cache.layers, part, cache.metric, horizon) for part in parts]
        return [Coarsening(group, self.config.sinks, alone=len(made) == 1) for group in made]

    def _guesses(
        self, cache: DistinctCache, goals: dict[int, int]
    ) -> dict[int, tuple[float, float]]:
        """Threshold and slope to begin with: by a search in some layers, if nothing is known."""
        known = {b: (self.thresholds[b] or 1.0, 1.0) for b in goals}
        n_layers, n_heads = len(cache.layers), cache.layers[0].keys.shape[1]
        some, heads = sample(n_layers, n_heads)
        devices = {cache.layers[number].keys.device for number in some}
        if any(self.thresholds[b] for b in goals) or len(some) < 2 or len(devices) > 1:
            return known
        # On CUDA a count of few slots takes as long as one of fewer.
        held = cache.n_slots_each()
        if devices != {torch.device("cpu")} and sum(held[b] for b in goals) < LARGE:
            return known
        part = len(some) * len(heads[0]) / (n_layers * n_heads)
        searches = {b: search(int(goal * part), *known[b], ROUGH) for b, goal in goals.items()}
        group = LayerGroup(cache.layers, some, cache.metric, self.config.merge.horizon, heads=heads)
        few = Coarsening(group, self.config.sinks, alone=True)
        found = run(searches, lambda at: [few.count(at).tolist()])
        met = {b: end for b, end in found.items() if LOWEST < end.threshold < HIGHEST}
        return known | {b: (end.threshold, end.slope) for b, end in met.items()}


def sample(n_layers: int, n_heads: int) -> tuple[list[int], list[list[int]]]:
    """About one head of `EVERY` in equally spaced layers: the layers, and the heads of each.

    >>> sample(4, 8)
    ([0, 1, 2, 3], [[0, 4], [1, 5], [2, 6], [3, 7]])
    >>> sample(8, 1)
    ([2, 6], [[0], [0]])
    >>> sample(8, 2)[1]
    [[0], [1], [0], [1]]
    """
    many = max(1, n_heads // EVERY)
    step = max(1, round(EVERY * many / n_heads))
    some = list(range(step // 2, n_layers, step))
    return some, [
        [(i + k * n_heads // many) % n_heads for k in range(many)] for i in range(len(some))
    ]
