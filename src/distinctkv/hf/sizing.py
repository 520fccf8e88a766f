"""How many slots there may be: thresholds that are searched for, and budgets that breathe."""

# B streams, H key-value heads, S slots of a head

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .merging import coarsen, count, evict
from .plan import Plan

if TYPE_CHECKING:
    from .cache import DistinctCache

CLOSE = 0.98  # a search ends when this part of the slots allowed is used
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
        pairs = list(zip(cache.layers, scales, strict=True))
        threshold = least_threshold(
            lambda at: sum(count(layer, stream, sinks, at, scale) for layer, scale in pairs),
            goal,
            start=before or 1.0,
        )
        for layer, scale in pairs:
            coarsen(layer, stream, sinks, threshold, scale)
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
    last two would just meet the goal.

    >>> round(least_threshold(lambda at: int(1000 / at), 100), 1)
    10.0
    """
    low, high, n_low, n_high = _bracket(slots, goal, start)
    while n_low > goal and n_high < CLOSE * goal and high > 1.01 * low:
        fall = log(n_low) - log(max(n_high, 1))
        share = (log(n_low) - log(max(0.99 * goal, 1))) / fall
        middle = low * (high / low) ** min(max(share, 0.1), 0.9)
        left = slots(middle)
        if left > goal:
            low, n_low = middle, left
        else:
            high, n_high = middle, left
    return high


def _bracket(
    slots: Callable[[float], int], goal: int, start: float
) -> tuple[float, float, int, int]:
    """Thresholds that leave more than the goal and no more than it, and what they leave."""
    low = high = start
    n_low = n_high = slots(start)
    while n_high > goal:
        low, n_low, high = high, n_high, high * 4
        n_high = slots(high)
    while n_low <= goal and low > 1e-9:
        high, n_high, low = low, n_low, low / 4
        n_low = slots(low)
    return low, high, n_low, n_high


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
