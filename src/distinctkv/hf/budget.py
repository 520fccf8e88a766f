"""The threshold that keeps a cache within its size: searched, and anew as more of a text comes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from math import ceil, exp, inf, log
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .config import Plan
from .merge import Group, Regrouping, evict_least_used, groups

if TYPE_CHECKING:
    from .cache import DistinctCache


CLOSE = 0.98  # a search ends when this part of the slots allowed is used
FAR = 16.0  # it goes no further than by this factor at a time,
FLAT, STEEP = 0.005, 32.0  # takes slots to fall by no power beyond these,
LEAST, MOST = 1e-9, 1e12  # and does not go beyond these thresholds
SAME = 0.99  # this part of the slots is as good as all, where no threshold leaves enough


class End(NamedTuple):
    """Where a search ended: the look that tried it, and by what power slots fall there.

    Where no threshold leaves few enough, what is ``left`` is more than the goal.
    """

    threshold: float
    look: int
    fall: float
    left: int  # slots


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
    few = []  # all thresholds where there are not, and the slots there
    at, slow = start, 0
    left = yield at
    while (left > goal and at < MOST) or (left < close * goal and at > LEAST):
        here = (at, log(at), log(max(left, 1)))
        if left > goal:
            low = here
        else:
            high = here
            few.append((at, left))
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
        fall = min(max((here[2] - log(max(left, 1))) / (to - here[1]), FLAT), STEEP)
        if low is not None and high is not None:
            rest = high[1] - to if left > goal else to - low[1]
            slow = 0 if slow == 2 or rest <= gap / 2 else slow + 1
    if low is None and left < close * goal:
        # No threshold leaves more. Near nothing, it would merge next to nothing from now on.
        return max([to for to, then in few if then >= SAME * left], default=at), fall
    return (at if left <= goal or high is None else high[0]), fall


def walk(
    walks: dict[int, Generator[float, int, tuple[float, float]]],
    look: Callable[[dict[int, float]], list[list[int]]],
) -> dict[int, End]:
    """Where each search ends."""
    at = {stream: next(walk) for stream, walk in walks.items()}
    tried: dict[tuple[int, float], tuple[int, int]] = {}
    found = {}
    for number in count():
        left = [sum(each) for each in zip(*look(at), strict=True)]
        tried |= {(stream, to): (number, left[stream]) for stream, to in at.items()}
        for stream in list(at):
            try:
                at[stream] = walks[stream].send(left[stream])
            except StopIteration as end:
                threshold, fall = end.value
                number_then, left_then = tried[stream, threshold]
                found[stream] = End(threshold, number_then, fall, left_then)
                del at[stream]
        if not at:
            break
    return found


# B streams, H key-value heads, S slots of a head


ROUGH = 0.95  # how close a search comes that only guesses where to begin,
EVERY = 4  # in one layer of so many, where there are
WORTH = 2**20  # slots
MANY = 0.25  # tokens that come at a time are many if they are this part of the slots of a head
LITTLE = 0.95  # less than this part of what may be held is too little,
SLACK = 0.95  # a budget that is met again and again is met with some room


@dataclass(slots=True)
class Sizing:
    """The threshold and the temperature of each stream, and what keeps its slots in bounds."""

    plan: Plan
    thresholds: list[float | None] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)
    opened: Tensor | None = None  # (B, L) heads of all layers that opened a slot, this pass
    anew: set[int] = field(default_factory=set)  # streams whose threshold this pass is to find
    told: bool = False  # that what is spared is more than may be held

    def start(self, batch: int) -> None:
        """Nothing seen."""
        self.thresholds, self.temperatures = [self.plan.start] * batch, [1.0] * batch
        self.told = False

    def select(self, streams: list[int]) -> None:
        """Keep, repeat or reorder streams."""
        self.thresholds = [self.thresholds[i] for i in streams]
        self.temperatures = [self.temperatures[i] for i in streams]

    def now(self, cache: DistinctCache, columns: int) -> list[float | None]:
        """The threshold at which each stream takes in so many columns; none if it is yet to find.

        The threshold of a part of a text is not that of more of it: where many tokens come beside
        few slots, all are slots at first, and those merge until the part is what was asked for.
        """
        if self.plan.kept is not None:
            most = columns * cache.n_heads / MANY
            streams = range(len(self.thresholds))
            self.anew = {b for b, held in enumerate(cache.n_slots_each()) if held <= most}
            return [None if b in self.anew else self.thresholds[b] for b in streams]
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
        goals, most = {}, {}
        slots = cache.n_slots_each()
        for stream, before in enumerate(self.thresholds):
            if self._early(cache, stream):
                continue
            allowed, held = self._allowed(cache, stream), slots[stream]
            if held > allowed:
                self._tell(cache, stream)
                most[stream] = goals[stream] = allowed
                if before is not None and stream not in self.anew:
                    goals[stream] = max(int(SLACK * allowed), self._fewest(cache, stream))
            elif before is not None and self.plan.kept is not None and held < LITTLE * allowed:
                # The text has grown, and with it what may be held: merge less from now on.
                self.thresholds[stream] = max(before * max(held / allowed, 0.5), LEAST)
        if not goals:
            return
        walks = {
            stream: search(goals[stream], *guess)
            for stream, guess in self._guesses(cache, goals).items()
        }
        regroupings = self._regroupings(cache, groups(cache.layers))

        def look(at: dict[int, float]) -> list[list[int]]:
            # All are asked before the first is waited for.
            left = [regrouping.look(at) for regrouping in regroupings]
            return [each.tolist() for each in left]

        found = walk(walks, look)
        lost = [stream for stream, end in found.items() if end.left > most[stream]]
        for stream in lost:
            # All in one slot is not what was asked for: nothing merges until there is a way.
            warnings.warn(_out_of_reach(self.plan, stream, found.pop(stream).left), stacklevel=2)
        for regrouping in regroupings:
            regrouping.coarsen({stream: end.look for stream, end in found.items()})
        for stream, end in found.items():
            if end.left <= goals[stream]:
                before = None if stream in self.anew else self.thresholds[stream]
                self.thresholds[stream] = max(end.threshold, before or 0.0)

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
        held = cache.n_slots_each()
        if devices != {torch.device("cpu")} and sum(held[stream] for stream in goals) < WORTH:
            return known
        walks = {
            stream: search(goal * len(some) // n_layers, *known[stream], ROUGH)
            for stream, goal in goals.items()
        }
        (few,) = self._regroupings(cache, [some])
        found = walk(walks, lambda at: [few.look(at).tolist()])
        met = {stream: end for stream, end in found.items() if LEAST < end.threshold < MOST}
        return known | {stream: (end.threshold, end.fall) for stream, end in met.items()}

    def _early(self, cache: DistinctCache, stream: int) -> bool:
        """Whether a part of so short a text leaves no slots beside the tokens outside."""
        if self.plan.kept is None:
            return False
        return self._each(cache, stream) < self.plan.sinks + 1

    def begins(self, cache: DistinctCache, stream: int) -> int:
        """At how many tokens a part leaves slots beside the newest; 0 once something merged."""
        if self.plan.kept in (None, 1.0) or self.thresholds[stream] is not None:
            return 0
        return ceil(self.plan.least / self.plan.kept)

    def _fewest(self, cache: DistinctCache, stream: int) -> int:
        """Slots that no threshold merges, and one more for each head."""
        seen, heads = cache.tokens(stream), cache.anatomy.heads
        rest = max(seen - cache.outside(stream) - self.plan.sinks, 0)
        spared = ceil(self.plan.care.spare * heads * rest) * len(cache.layers)
        return spared + cache.n_heads * (min(self.plan.sinks, seen) + 1)

    def _allowed(self, cache: DistinctCache, stream: int) -> int:
        """Slots that the plan leaves beside the tokens outside, over all layers and heads."""
        asked = int(self._each(cache, stream) * cache.n_heads)
        return max(asked, self._fewest(cache, stream))

    def _each(self, cache: DistinctCache, stream: int) -> float:
        """Slots of a head that were asked for."""
        kept, seen = self.plan.kept, cache.tokens(stream)
        asked = float(self.plan.budget or 0) if kept is None else kept * seen
        return asked - cache.outside(stream)

    def _tell(self, cache: DistinctCache, stream: int) -> None:
        """Say once that more tokens are spared than leave room for others."""
        fewest = self._fewest(cache, stream)
        asked = int(self._each(cache, stream) * cache.n_heads)
        if self.told or not self.plan.care.spare or asked >= fewest:
            return
        self.told = True
        warnings.warn(_too_much_spared(self.plan, stream, asked, fewest), stacklevel=2)

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


def _out_of_reach(plan: Plan, stream: int, left: int) -> str:
    asked = f"kept={plan.kept}" if plan.kept is not None else f"budget={plan.budget}"
    return (
        f"{asked} cannot be met by stream {stream}: at any threshold {left} slots are left, so "
        "its threshold stays and more is held; keep more, or care less"
    )


def _too_much_spared(plan: Plan, stream: int, asked: int, fewest: int) -> str:
    return (
        f"kept={plan.kept} leaves stream {stream} {asked} slots so far, and care that spares "
        f"{plan.care.spare} needs {fewest}: so many are held, all else in one slot of each head; "
        "keep more, or spare less"
    )
