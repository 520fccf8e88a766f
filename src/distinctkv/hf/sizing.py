"""How many slots there may be: thresholds that are searched for, and budgets that breathe."""

# B streams, H key-value heads, S slots of a head

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .coarsening import Regrouping, evict_least_used
from .grouping import Group, groups
from .plan import Plan
from .searching import LEAST, MOST, search, walk

if TYPE_CHECKING:
    from .cache import DistinctCache

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
