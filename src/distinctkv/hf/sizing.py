"""How many slots there may be: thresholds that are searched for, and budgets that breathe."""

# B streams, H key-value heads, S slots of a head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, log
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .allocation import Allocation
from .merging import coarsen, evict, regroup
from .plan import Plan

if TYPE_CHECKING:
    from .cache import DistinctCache

CLOSE = 0.98  # a search ends when this part of the slots allowed is used
AIM = 0.99  # halfway between that and all
FAR = 16.0  # a search goes no further than by this factor at a time,
LEAST, MOST = 1e-9, 1e12  # and not beyond these thresholds
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
        if self.plan.searches:
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
        for stream in range(len(self.thresholds)):
            if self.plan.searches:
                self._search(cache, stream)
            elif self.plan.surprise:
                self._heat(cache, stream, opened[stream])

    def _search(self, cache: DistinctCache, stream: int) -> None:
        """Merge slots until the stream holds what it may."""
        allowed, held = self._allowed(cache, stream), cache.n_slots(stream)
        if held <= allowed:
            return
        before, sinks = self.thresholds[stream], self.plan.sinks
        goal = allowed if before is None else int(SLACK * allowed)
        scales = [cache.scale(index, stream) for index in range(len(cache.layers))]

        looks: dict[float, list[Allocation]] = {}

        def slots(at: float) -> int:
            pairs = zip(cache.layers, scales, strict=True)
            looks[at] = [regroup(layer, stream, sinks, at, scale) for layer, scale in pairs]
            return sum(int(choice.lengths.sum()) for choice in looks[at])

        threshold = least_threshold(slots, goal, before or 1.0)
        for layer, choice in zip(cache.layers, looks[threshold], strict=True):
            coarsen(layer, stream, sinks, choice)
        self.thresholds[stream] = max(threshold, before or 0.0)

    def _allowed(self, cache: DistinctCache, stream: int) -> int:
        """Slots that the plan leaves beside the tokens outside, over all layers and heads."""
        seen, outside, heads = cache.tokens(stream), cache.outside(stream), cache.n_heads
        if self.plan.kept is not None:
            each = self.plan.kept * seen - outside
        else:
            each = float((self.plan.budget or 0) - outside)
        # A head cannot do with less than its sinks and one slot.
        return max(int(each * heads), heads * (min(self.plan.sinks, seen) + 1))

    def _heat(self, cache: DistinctCache, stream: int, opened: Tensor) -> None:
        """Approach II of the paper, over all heads: a budget by temperature, least used go."""
        surprise = self.plan.surprise
        assert surprise is not None
        temperature = self.temperatures[stream]
        for share in (opened / cache.n_heads).tolist():
            temperature += surprise.rate * (share - temperature)
        self.temperatures[stream] = temperature
        each = surprise.base + surprise.gain * temperature - cache.outside(stream)
        extra = cache.n_slots(stream) - int(each * cache.n_heads)
        if extra > 0:
            _evict_least_used(cache, stream, extra, self.plan.sinks)


def least_threshold(slots: Callable[[float], int], goal: int, start: float = 1.0) -> float:
    """The least threshold, to a few per cent, that leaves at most ``goal`` slots.

    Each look at ``slots`` is a pass over all tokens, so the next is where a power law through the
    last two would just meet the goal; the first guess is that slots fall as the threshold grows.

    >>> round(least_threshold(lambda at: int(1000 / at), 100), 1)
    10.1
    """
    low, high, at, left, fall = 0.0, inf, start, slots(start), 1.0
    while not CLOSE * goal <= left <= goal and LEAST < at < MOST:
        low, high = (at, high) if left > goal else (low, at)
        if high <= 1.01 * low:
            return high
        to = at * min(max((max(left, 1) / (AIM * goal)) ** (1 / fall), 1 / FAR), FAR)
        if low > 0 and high < inf:
            to = min(max(to, low * (high / low) ** 0.1), low * (high / low) ** 0.9)
        now = slots(to)
        if now != left:
            fall = min(max(log(max(left, 1) / max(now, 1)) / log(to / at), 0.25), 4.0)
        at, left = to, now
    return at if left <= goal else min(high, at)


def _evict_least_used(cache: DistinctCache, stream: int, extra: int, sinks: int) -> None:
    """Drop slots of a stream wherever they are used least."""
    usages = []
    for layer in cache.layers:
        assert layer.slots is not None
        slots = layer.slots.padded(stream)
        there = slots.counts > 0
        there[:, :sinks] = False
        usages.append(slots.usage.masked_fill(~there, float("inf")).cpu())
    flat = torch.cat([usage.flatten() for usage in usages])
    extra = min(extra, int(flat.isfinite().sum()))
    gone = torch.zeros_like(flat, dtype=torch.bool)
    # Stable: of two slots used alike the older layer, head and slot goes, always the same.
    gone[flat.sort(stable=True).indices[:extra]] = True
    for layer, part in zip(
        cache.layers, torch.split(gone, [u.numel() for u in usages]), strict=True
    ):
        keep = ~part.view(cache.anatomy.heads, -1).to(layer.keys.device)
        evict(layer, stream, keep)
