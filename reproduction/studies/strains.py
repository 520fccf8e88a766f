"""The strains of study ``stress``: what is turned up, and the settings that meet it.

The first setting of a strain is the paper's (`PLAIN`). The second, where there is one, is the same
everywhere (`SAFE`): what we would use on a stream we know nothing about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration, Merge

from ..baselines import Attention
from ..data import Episode, RecallTask
from ..data.hard import alike, drifting, mislabelled, rebound

TASK = RecallTask()
LONG, FIVE = replace(TASK, repeats=32), replace(TASK, repeats=5)
TAU = 0.3
TAUS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
PLAIN, SAFE, ALL = "plain", "safe", "every token"
MEANT = {
    PLAIN: "tau .3, first key, first value, not centred",
    SAFE: "tau .3, ema key at pace .3, last value, centred",
}

Stream = Callable[[np.random.Generator], Episode]
Make = Callable[[], Memory]


@dataclass(frozen=True, slots=True)
class Strain:
    """A table: streams by how hard they are strained, and the settings that meet them all."""

    name: str
    heading: str
    degree: str  # what a stream is called, given its number
    streams: Mapping[float, Stream]
    settings: Mapping[str, Make]
    timed: bool = False
    heavy: bool = False  # one stream for each of a few seeds is enough

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured here."""
        return ("recall", "slots/item", "bytes", *(["tokens/s"] if self.timed else []))

    @property
    def hardest(self) -> float:
        """The stream that is strained most."""
        return max(self.streams)

    def label(self, number: float) -> str:
        """What a stream is called."""
        return self.degree.format(number)


def _cache(tau: float = TAU, merge: Merge | None = None, centre: bool = False) -> Make:
    return lambda: Cache(Concentration.fixed(tau), merge=merge, centre=centre)


def _plain(task: RecallTask, n_queries: int | None = None) -> Stream:
    return partial(task.draw, n_queries=n_queries)


def at_tau(tau: float) -> str:
    """What the plain setting is called at another threshold.

    >>> at_tau(0.05), at_tau(0.3)
    ('tau .05', 'plain')
    """
    return PLAIN if tau == TAU else f"tau {tau:g}".replace("0.", ".")


BASE: Mapping[str, Make] = {
    PLAIN: _cache(),
    SAFE: _cache(TAU, Merge(key="ema", pace=0.3, value="last"), centre=True),
}
MEAN, SLOW, FAST = Merge(key="mean"), Merge(key="ema"), Merge(key="ema", pace=0.3)
VALUES: Mapping[str, Make] = {
    **BASE,
    "last value": _cache(merge=Merge(value="last")),
    "mean value": _cache(merge=Merge(value="mean")),
    "counts": _cache(merge=Merge(value="counts")),
    ALL: Attention,
}
STRAINS = (
    Strain(
        "alike",
        "Keys that share a direction",
        "cosine {:g}",
        {c: partial(alike, task=TASK, common=c) for c in (0.0, 0.2, 0.4, 0.6, 0.8)},
        {
            **BASE,
            "centred": _cache(centre=True),
            "tau .1": _cache(0.1),
            "tau .1, centred": _cache(0.1, centre=True),
        },
    ),
    Strain(
        "noise",
        "Repeats that differ",
        "noise {:g}",
        {s: _plain(replace(TASK, noise=s)) for s in (0.1, 0.3, 0.5, 0.7, 1.0)},
        {
            **BASE,
            "tau .2": _cache(0.2),
            "tau .4": _cache(0.4),
            "tau .5": _cache(0.5),
            ALL: Attention,
        },
    ),
    Strain(
        "keys",
        "Repeats that differ, 32 of each item",
        "noise {:g}",
        {s: _plain(replace(LONG, noise=s)) for s in (0.5, 0.7)},
        {
            **BASE,
            "mean key": _cache(merge=MEAN),
            "ema key": _cache(merge=SLOW),
            "tau .4": _cache(0.4),
            "tau .4, mean key": _cache(0.4, MEAN),
            "tau .4, ema key": _cache(0.4, SLOW),
        },
        timed=True,
    ),
    Strain(
        "drift",
        "Items that turn while the stream runs, 32 repeats of each",
        "{:g} degrees",
        {d: partial(drifting, task=LONG, degrees=d) for d in (0.0, 75.0, 150.0)},
        {
            **BASE,
            "mean key": _cache(merge=MEAN),
            "ema key, pace .1": _cache(merge=SLOW),
            "ema key, pace .3": _cache(merge=FAST),
        },
    ),
    Strain(
        "rebound",
        "Keys bound again: three old values, then two new, which are right",
        "{:g} of 5 new",
        {2.0: partial(rebound, task=FIVE, renewed=2)},
        VALUES,
    ),
    Strain(
        "mislabelled",
        "Values that are wrong at random, five of each item",
        "{:g} wrong",
        {0.2: partial(mislabelled, task=FIVE, part=0.2)},
        VALUES,
    ),
    Strain(
        "tau",
        "A threshold set wrong",
        "noise {:g}",
        {s: _plain(replace(TASK, noise=s)) for s in (0.1, 0.5)},
        {at_tau(tau): _cache(tau) for tau in TAUS},
    ),
    *(
        Strain(
            f"size{width}",
            f"Many items, keys of {width} numbers",
            "{:,g} items",
            {
                float(k): _plain(replace(TASK, n_items=k, width=width), n_queries=1000)
                for k in (100, 1000, 10_000)
            },
            {PLAIN: _cache(), "tau .1": _cache(0.1), "tau .5": _cache(0.5)},
            timed=True,
            heavy=True,
        )
        for width in (64, 128)
    ),
)
