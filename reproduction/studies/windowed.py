"""A real stream in calendar windows: keys for its events, and what each window demands."""

from __future__ import annotations

import numpy as np

from distinctkv.rule import unit

from ..data import Episode, Events, windows
from ..data.synthetic import occurrences

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
