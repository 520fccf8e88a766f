"""A memory followed along a stream of phases: what it holds, and what it knows at their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from ..data import Episode
from ..memory import Cache, Memory
from ..rule import Floats

# Tokens between two counts of the slots; it must divide the phases.
STEP = 1


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One memory on one stream; ``ends`` are the last steps of the phases."""

    recall: Floats  # (phases,)
    ends: tuple[int, ...]
    slots: Floats  # (steps,)
    bytes: Floats  # (steps,)
    budget: Floats  # (steps,), of a cache

    def at_ends(self, numbers: Floats) -> Floats:
        """The numbers of the last step in each phase."""
        found: Floats = numbers[list(self.ends)]
        return found


MEASURES: Mapping[str, Callable[[Trace], float]] = {
    "recall": lambda trace: float(trace.recall.mean()),
    "phase end": lambda trace: float(trace.at_ends(trace.slots).mean()),
    "per token": lambda trace: float(trace.slots.mean()),
    "peak": lambda trace: float(trace.slots.max()),
    "bytes": lambda trace: float(trace.bytes.mean()),
}


def follow(memory: Memory, phases: Sequence[Episode]) -> Trace:
    """Write a stream step by step; when a phase ends, ask for all that was in it.

    >>> from ..data import PhasedTask, RecallTask
    >>> task = PhasedTask((RecallTask(n_items=2, repeats=3), RecallTask(n_items=4, repeats=3)))
    >>> trace = follow(Cache(), task.draw(np.random.default_rng(0)))
    >>> trace.recall, trace.slots[::3]
    (array([1., 1.]), array([1., 2., 3., 5., 5., 6.]))
    """
    recall, ends, held = [], [], []
    for phase in phases:
        for start in range(0, len(phase.keys), STEP):
            step = slice(start, start + STEP)
            memory.write(phase.keys[step], phase.values[step])
            budget = memory.budget if isinstance(memory, Cache) else inf
            held.append((len(memory), memory.nbytes, budget))
        answers = np.asarray(memory.read(phase.queries)).argmax(axis=1)
        recall.append((answers == phase.answers).mean())
        ends.append(len(held) - 1)
    return Trace(np.array(recall), tuple(ends), *np.array(held, dtype=np.float64).T)
