"""How ours merges: with the `Care` of the cache, and in ways that the cache does not have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from distinctkv.hf import Care
from distinctkv.hf.config import Plan

SINKS = 4


@dataclass(frozen=True, slots=True)
class Recipe:
    """How tokens are merged: with `Care`, and in ways that the cache does not have.

    ``peak``: importance is the most that a far query paid, not the mean of all.
    ``key``: whose key, at its position, stands for the slot. ``value``: what its value is: the
    mean that `Care` says, or that of the key's token.
    ``count``: the bias of a slot of n tokens is so many times log n.
    ``recent``: so many of the newest tokens are not merged; if it is not said, as many as the cache
    leaves by itself.
    """

    care: Care = field(default_factory=Care)
    peak: float = 0.0
    key: Literal["first", "last", "heaviest"] = "first"
    value: Literal["mean", "own"] = "mean"
    count: float = 1.0
    recent: int | None = None

    @property
    def near(self) -> tuple[float | None, ...]:
        """What decides which tokens merge; recipes alike in this share their looks."""
        care = self.care
        return care.importance, care.spare, self.peak, care.horizon, self.recent

    def sized(self, tokens: int, part: float | None = None) -> Recipe:
        """The same for a text of so many tokens and the part to keep, if there is one.

        >>> Recipe().sized(1024, 1 / 16).newest, Recipe().sized(1024).newest
        (8, 32)
        """
        return replace(self, recent=Plan(kept=part, recent=self.recent).newest(tokens))

    @property
    def newest(self) -> int:
        """Tokens that are not merged; where no part was told, as by a threshold."""
        return Plan(recent=self.recent).most
