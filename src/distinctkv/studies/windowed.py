"""A real stream in calendar windows: keys for its events, and a memory followed along it."""

# L events, D key size, C classes, Q distinct items of a window

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from ..data import Episode, Events, windows
from ..data.synthetic import occurrences
from ..memory import Cache, Memory
from ..rule import unit
from .following import Trace

N_WINDOWS = 25


def draw(events: Events, seed: int, width: int, noise: float) -> tuple[Episode, ...]:
    """The stream window by window, under keys drawn anew; each asks for its items, once each.

    An item has one random direction in all windows, and every occurrence its own noise. A window
    without events is left out.
    """
    rng = np.random.default_rng(seed)
    prototypes = unit(rng.standard_normal((len(events.names), width)))
    place, classes = windows(events.times, N_WINDOWS), np.eye(len(events.classes))
    phases = []
    for window in np.unique(place):
        items, labels = events.items[place == window], events.labels[place == window]
        asked, first = np.unique(items, return_index=True)
        phases.append(
            Episode(
                keys=occurrences(rng, prototypes[items], noise),
                values=classes[labels],
                items=items,
                queries=occurrences(rng, prototypes[asked], noise),
                answers=labels[first],
            )
        )
    return tuple(phases)


def demand(events: Events) -> tuple[tuple[int, int], ...]:
    """Tokens and distinct items in each window."""
    place = windows(events.times, N_WINDOWS)
    each = (events.items[place == window] for window in np.unique(place))
    return tuple((len(items), len(np.unique(items))) for items in each)


def trace(memory: Memory, phases: Sequence[Episode], step: int) -> Trace:
    """Write a stream, asking as each window ends; slots are counted after every ``step`` tokens.

    The last step of a window may be shorter, so its count weighs a little more than its tokens.
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
