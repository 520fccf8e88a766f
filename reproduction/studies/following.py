"""A memory followed along a stream of phases: what it holds, and what it knows at their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.rule import Floats

from ..data import Episode


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
# What one memory recalls and holds beyond another.
EXTRA = {"gain": "recall", "extra at ends": "phase end", "extra per token": "per token"}


def follow(memory: Memory, phases: Sequence[Episode], step: int = 1) -> Trace:
    """Write a stream, ``step`` tokens at a time; when a phase ends, ask for all that was in it.

    Slots are counted after every step. The last one of a phase may be shorter, and then its count
    weighs a little more than its tokens.

    >>> from ..data import PhasedTask, RecallTask
    >>> task = PhasedTask((RecallTask(n_items=2, repeats=3), RecallTask(n_items=4, repeats=3)))
    >>> trace = follow(Cache(), task.draw(np.random.default_rng(0)))
    >>> trace.recall, trace.slots[::3]
    (array([1., 1.]), array([1., 2., 3., 5., 5., 6.]))
    """
    recall, ends, held = [], [], []
    for phase in phases:
        for part in parts(len(phase.keys), step):
            memory.write(phase.keys[part], phase.values[part])
            budget = memory.budget if isinstance(memory, Cache) else inf
            held.append((len(memory), memory.nbytes, budget))
        answers = np.asarray(memory.read(phase.queries)).argmax(axis=1)
        recall.append((answers == phase.answers).mean())
        ends.append(len(held) - 1)
    return Trace(np.array(recall), tuple(ends), *np.array(held, dtype=np.float64).T)


def parts(n_tokens: int, step: int) -> Iterator[slice]:
    """Slices of ``step`` tokens, the last with what is left.

    >>> [*parts(5, 2)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + step, n_tokens)) for start in range(0, n_tokens, step))


def at_cost(sizes: Sequence[Trace], ours: Trace) -> float:
    """Recall of a rival at our slots per token, by a line between its sizes on the same stream."""
    points = sorted((MEASURES["per token"](t), MEASURES["recall"](t)) for t in sizes)
    costs, recalls = zip(*points, strict=True)
    return float(np.interp(MEASURES["per token"](ours), costs, recalls))
