"""A stream whose working set changes: phases one after another, each with items of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .synthetic import Episode, RecallTask


@dataclass(frozen=True, slots=True)
class PhasedTask:
    """Recall tasks in a row; the items of a phase never come back.

    The paper's stream for its adaptive cache (section 3.2.1) alternates between 6 and 30 items.
    It leaves open how often and how long: 8 phases, the easy one first, and 6 occurrences of every
    item are what its averages add up to.

    >>> task = PhasedTask((RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6)) * 4)
    >>> task.lengths
    (36, 180, 36, 180, 36, 180, 36, 180)
    """

    phases: tuple[RecallTask, ...]

    def __post_init__(self) -> None:
        """Refuse phases that no one memory can hold."""
        if not self.phases:
            raise ValueError("a stream needs at least 1 phase, got none")
        sizes = {(phase.width, phase.n_classes) for phase in self.phases}
        if len(sizes) > 1:
            raise ValueError(f"phases must share width and n_classes, got {sorted(sizes)}")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens in each phase."""
        return tuple(phase.n_tokens for phase in self.phases)

    def draw(self, rng: np.random.Generator) -> tuple[Episode, ...]:
        """One stream, phase by phase; the queries of a phase ask for each of its items once."""
        return tuple(phase.draw(rng, n_queries=None) for phase in self.phases)
