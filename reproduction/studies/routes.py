"""Drugs with several routes: which one a slot answers with, by what a repeat does to its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration, Merge, ValuePolicy

from ..baselines import Attention
from ..data import Episode, Events, Ints, medical
from ..result import Measure, Row
from .synthetic_keys import SyntheticKeys, most_common_label

POLICIES: Mapping[str, tuple[str, str]] = {
    "first": ("Slots keep the first route", "Merge(value='first'), the paper's"),
    "last": ("Slots keep the last route", "Merge(value='last')"),
    "counts": ("Slots count routes", "Merge(value='counts'), the commonest answers"),
    "attention": ("Attention", "every event"),
}
ROUTES = ("first route", "last route", "commonest route")


def label_rows(missing: bool, seeds: Sequence[int], tau: float) -> Iterator[Row]:
    """A row for each policy: how often the answer is a drug's first, last, commonest route."""
    found: dict[str, list[list[float]]] = {policy: [] for policy in POLICIES}
    if not missing:
        events = medical.load_mimic().prescriptions
        for seed in seeds:
            episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
            for policy in POLICIES:
                answers = answer(events, episode, policy, tau)
                found[policy].append([float((answers == truth).mean()) for truth in truths(events)])
    lacks = "mimic" if missing else ""
    for policy, (label, setting) in POLICIES.items():
        columns = zip(ROUTES, zip(*found[policy], strict=True), strict=not missing)
        measures = {name: Measure.of(scores) for name, scores in columns}
        yield Row(policy, label, measures, setting, "added", "labels", lacks)


def answer(events: Events, episode: Episode, policy: str, tau: float) -> Ints:
    """The route that is answered for each drug."""
    if policy == "attention":
        attention = Attention()
        attention.write(episode.keys, episode.values)
        found: Ints = attention.read(episode.queries).argmax(axis=1)
        return found
    cache = Cache(Concentration.fixed(tau), merge=Merge(value=cast(ValuePolicy, policy)))
    cache.write(episode.keys, events.labels)
    return cache.read(episode.queries)


def truths(events: Events) -> tuple[Ints, Ints, Ints]:
    """The first, the last and the commonest label of each item.

    >>> items, labels = np.array([0, 0, 0]), np.array([2, 1, 1])
    >>> truths(Events(items, labels, np.arange(3), ("sky",), tuple("abc"), ""))
    (array([2]), array([1]), array([1]))
    """
    first = np.unique(events.items, return_index=True)[1]
    last = len(events) - 1 - np.unique(events.items[::-1], return_index=True)[1]
    return events.labels[first], events.labels[last], most_common_label(events)
