"""How many slots there may be: thresholds that are searched for, and budgets that breathe."""

# B streams, H key-value heads, S slots of a head

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from math import exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .coarsening import Regrouping, evict_least_used
from .grouping import Group, groups
from .plan import Plan

if TYPE_CHECKING:
    from .cache import DistinctCache

CLOSE = 0.98  # a search ends when this part of the slots allowed is used
ROUGH = 0.95  # the same of a search that only guesses where to begin,
EVERY = 4  # in one layer of so many, where there are
WORTH = 2**20  # slots
FAR = 16.0  # a search goes no further than by this factor at a time,
LEAST, MOST = 1e-9, 1e12  # and not beyond these thresholds
LITTLE = 0.9  # less than this part of what may be held is too little,
SLACK = 0.95  # a budget that is met again and again is met with some room


@dataclass(slots=True)
class Sizing:
    """The threshold and the temperature of each stream, and what keeps its slots in bounds."""

    plan: Plan
    thresholds: list[float | None] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    opened: Tensor | None = None  # (B, L) heads of all layers that opened a slot, this pass

    def start(self, batch: int) -> None:
        """Nothing seen."""
        self.thresholds, self.temperatures = [self.plan.start] * batch, [1.0] * batch

    def select(self, streams: list[int]) -> None:
        """Keep, repeat or reorder streams."""
        self.thresholds = [self.thresholds[i] for i in streams]
        self.temperatures = [self.temperatures[i] for i in streams]

    def now(self, cache: DistinctCache) -> list[float | None]:
        """The threshold of each stream at its present length."""
        if self.plan.searches or not self.plan.care.tighten:
            return self.thresholds
        return [
            None if at is None else self.plan.care.threshold(at, cache.tokens(stream))
            for stream, at in enumerate(self.thresholds)
        ]

    def note(self, opened: Tensor) -> None:
        """Count the slots that a layer opened."""
        self.opened = opened if self.opened is None else self.opened + opened.to(self.opened.device)

    def settle(self, cache: DistinctCache) -> None:
        """After the last layer of a pass: back within bounds."""
        opened, self.opened = self.opened, None
        if opened is None:
            return
        if self.plan.searches:
            self._search(cache)
        elif self.plan.surprise:
            extra = [self._heat(cache, stream, row) for stream, row in enumerate(opened.tolist())]
            if max(extra) > 0:
                evict_least_used(cache.layers, extra, self.plan.sinks)

    def _search(self, cache: DistinctCache) -> None:
        """Merge slots until each stream holds what it may; all streams look at the same time."""
        goals = {}
        for stream, before in enumerate(self.thresholds):
            if self._early(cache, stream):
                continue
            allowed, held = self._allowed(cache, stream), cache.n_slots(stream)
            if held > allowed:
                goals[stream] = allowed if before is None else int(SLACK * allowed)
            elif before is not None and self.plan.kept is not None and held < LITTLE * allowed:
                # The text has grown, and with it what may be held: merge less from now on.
                self.thresholds[stream] = before * max(held / allowed, 0.5)
        if not goals:
            return
        walks = {
            stream: search(goals[stream], *guess)
            for stream, guess in self._guesses(cache, goals).items()
        }
        regroupings = self._regroupings(cache, groups(cache.layers))
        found = _walk(walks, lambda at: [r.look(at).tolist() for r in regroupings])
        for regrouping in regroupings:
            regrouping.coarsen({stream: end.look for stream, end in found.items()})
        for stream, end in found.items():
            self.thresholds[stream] = max(end.threshold, self.thresholds[stream] or 0.0)

    def _regroupings(self, cache: DistinctCache, parts: list[list[int]]) -> list[Regrouping]:
        made = [Group(cache.layers, part, cache.metric, self.plan.care.horizon) for part in parts]
        return [Regrouping(group, self.plan.sinks, alone=len(made) == 1) for group in made]

    def _guesses(
        self, cache: DistinctCache, goals: dict[int, int]
    ) -> dict[int, tuple[float, float]]:
        """Where to begin, and how fast slots fall there: from some layers, if nothing is known."""
        known = {stream: (self.thresholds[stream] or 1.0, 1.0) for stream in goals}
        n_layers = len(cache.layers)
        some = list(range(1, n_layers, max(EVERY, len(groups(cache.layers)))))
        devices = {cache.layers[number].keys.device for number in some}
        if any(self.thresholds[stream] for stream in goals) or len(some) < 2 or len(devices) > 1:
            return known
        # A look at few slots waits for the device, and one at fewer as long.
        if devices != {torch.device("cpu")} and sum(map(cache.n_slots, goals)) < WORTH:
            return known
        walks = {
            stream: search(goal * len(some) // n_layers, *known[stream], ROUGH)
            for stream, goal in goals.items()
        }
        (few,) = self._regroupings(cache, [some])
        found = _walk(walks, lambda at: [few.look(at).tolist()])
        return {stream: (end.threshold, end.fall) for stream, end in found.items()}

    def _early(self, cache: DistinctCache, stream: int) -> bool:
        """Whether a part of so short a text leaves no slots beside the tokens outside."""
        if self.plan.kept is None:
            return False
        each = self.plan.kept * cache.tokens(stream) - cache.outside(stream)
        return each < self.plan.sinks + 1

    def _allowed(self, cache: DistinctCache, stream: int) -> int:
        """Slots that the plan leaves beside the tokens outside, over all layers and heads."""
        seen, outside, heads = cache.tokens(stream), cache.outside(stream), cache.n_heads
        if self.plan.kept is not None:
            each = self.plan.kept * seen - outside
        else:
            each = float((self.plan.budget or 0) - outside)
        # A head cannot do with less than its sinks and one slot.
        return max(int(each * heads), heads * (min(self.plan.sinks, seen) + 1))

    def _heat(self, cache: DistinctCache, stream: int, opened: list[float]) -> int:
        """Approach II of the paper, over all heads: slots beyond a budget by temperature."""
        surprise = self.plan.surprise
        assert surprise is not None
        temperature = self.temperatures[stream]
        for n_heads in opened:
            if n_heads < 0:  # padding
                continue
            temperature += surprise.rate * (n_heads / cache.n_heads - temperature)
        self.temperatures[stream] = temperature
        each = surprise.base + surprise.gain * temperature - cache.outside(stream)
        return cache.n_slots(stream) - int(each * cache.n_heads)


class End(NamedTuple):
    """Where a search ended: the look that tried it, and by what power slots fall there."""

    threshold: float
    look: int
    fall: float


def least_threshold(slots: Callable[[float], int], goal: int, start: float = 1.0) -> float:
    """The least threshold, to a few per cent, that leaves at most ``goal`` slots.

    Each look at ``slots`` is a pass over all tokens, so the next is where a power law through two
    looks would just meet the goal; the first guess is that slots fall as the threshold grows.

    >>> round(least_threshold(lambda at: int(1000 / at), 100), 1)
    10.1
    """
    walk = search(goal, start)
    at = next(walk)
    try:
        while True:
            at = walk.send(slots(at))
    except StopIteration as end:
        found: float = end.value[0]
        return found


def search(
    goal: int, start: float, fall: float = 1.0, close: float = CLOSE
) -> Generator[float, int, tuple[float, float]]:
    """`least_threshold` turned round: it asks for the slots left at one threshold after another.

    It ends with a threshold, and with the power by which slots ``fall`` there.
    """
    aim = log((1 + close) / 2 * goal)  # halfway between enough and all
    low = high = None  # where there are too many slots, and where not: threshold, and both as logs
    at, slow = start, 0
    left = yield at
    while not close * goal <= left <= goal and LEAST < at < MOST:
        here = (at, log(at), log(max(left, 1)))
        low, high = (here, high) if left > goal else (low, here)
        if low is None or high is None:
            gap = inf
            to = here[1] + min(max((here[2] - aim) / fall, -log(FAR)), log(FAR))
        else:
            gap = high[1] - low[1]
            if gap <= log(1.01):
                return high[0], fall
            # Halfway where the law has failed twice to halve what is left.
            halve = slow == 2 or low[2] <= high[2]
            part = 0.5 if halve else (low[2] - aim) / (low[2] - high[2])
            to = low[1] + gap * min(max(part, 0.05), 0.95)
        at = exp(to)
        left = yield at
        fall = min(max((here[2] - log(max(left, 1))) / (to - here[1]), 0.25), 32.0)
        if low is not None and high is not None:
            rest = high[1] - to if left > goal else to - low[1]
            slow = 0 if slow == 2 or rest <= gap / 2 else slow + 1
    return (at if left <= goal or high is None else high[0]), fall


def _walk(
    walks: dict[int, Generator[float, int, tuple[float, float]]],
    look: Callable[[dict[int, float]], list[list[int]]],
) -> dict[int, End]:
    """Where each search ends."""
    at = {stream: next(walk) for stream, walk in walks.items()}
    tried: dict[tuple[int, float], int] = {}
    found = {}
    for number in count():
        tried |= dict.fromkeys(at.items(), number)
        left = [sum(each) for each in zip(*look(at), strict=True)]
        for stream in list(at):
            try:
                at[stream] = walks[stream].send(left[stream])
            except StopIteration as end:
                threshold, fall = end.value
                found[stream] = End(threshold, tried[stream, threshold], fall)
                del at[stream]
        if not at:
            break
    return found
