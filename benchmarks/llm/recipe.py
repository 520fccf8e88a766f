"""How ours merges: by the `MergePolicy` of the cache, and in ways that the cache does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from distinctkv.hf import FAST, MergePolicy
from distinctkv.hf.budget import BudgetController
from distinctkv.hf.config import CacheConfig

SINKS = 4
SHORT = 1024  # tokens up to which a threshold is taken as it is


def policy(
    importance: float = 0.0, horizon: float | None = None, *, attention_mean: bool = False
) -> MergePolicy:
    """What is named, and nothing else."""
    return MergePolicy(importance, horizon, attention_mean)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How tokens are merged: by a `MergePolicy`, and in ways that the cache does not have.

    ``peak``: importance is the most that a far query paid, not the mean of all.
    ``key``: whose key, at its position, stands for the slot. ``value``: what its value is: the
    mean of the policy, or that of the key's token.
    ``count``: the bias of a slot of n tokens is so many times log n.
    ``tighten``: beyond 1024 tokens a threshold falls with their number to this power.
    ``recent``: so many of the newest tokens are not merged; if it is not said, as many as the cache
    leaves by itself.
    """

    merge: MergePolicy = FAST
    peak: float = 0.0
    key: Literal["first", "last", "heaviest"] = "first"
    value: Literal["mean", "own"] = "mean"
    count: float = 1.0
    recent: int | None = None
    tighten: float = 0.0

    @property
    def near(self) -> tuple[float | None, ...]:
        """What decides which tokens merge; recipes alike in this share their looks."""
        return self.merge.importance, self.peak, self.merge.horizon, self.recent

    def threshold(self, threshold: float, tokens: int) -> float:
        """The threshold for a text of so many tokens.

        >>> Recipe(tighten=0.5).threshold(2.0, 4096)
        1.0
        """
        return threshold * float(min(1.0, SHORT / max(tokens, 1)) ** self.tighten)

    def sized(self, tokens: int, part: float | None = None) -> Recipe:
        """The same for a text of so many tokens and the part to keep, if there is one.

        >>> Recipe().sized(1024, 1 / 16).newest, Recipe().sized(1024).newest
        (8, 32)
        """
        config = CacheConfig(kept=part, recent=self.recent)
        return replace(self, recent=BudgetController(config).recent(tokens))

    @property
    def newest(self) -> int:
        """Tokens that are not merged; where no part was told, as by a threshold."""
        return CacheConfig(recent=self.recent).max_recent
