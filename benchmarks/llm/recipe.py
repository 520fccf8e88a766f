"""How ours merges: with the `Care` of the cache, and in ways that the cache does not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distinctkv.hf import Care

SINKS, RECENT = 4, 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """How tokens are merged: with `Care`, and in ways that the cache does not have.

    ``peak``: importance is the most that a far query paid, not the mean of all.
    ``key``: whose key, at its position, stands for the slot. ``value``: what its value is: the
    mean that `Care` says, or that of the key's token.
    ``count``: the bias of a slot of n tokens is so many times log n.
    """

    care: Care = field(default_factory=Care)
    peak: float = 0.0
    key: Literal["first", "last", "heaviest"] = "first"
    value: Literal["mean", "own"] = "mean"
    count: float = 1.0

    @property
    def near(self) -> tuple[float | None, ...]:
        """What decides which tokens merge; recipes alike in this share their looks."""
        return self.care.importance, self.care.spare, self.peak, self.care.horizon
