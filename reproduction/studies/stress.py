"""Not in the paper: streams that stress the rule, and the settings that withstand them.

Each condition changes one thing about the paper's recall stream, in several degrees. All settings
of a condition see the same streams, and every item is asked for once. The recommended setting for a
stream has the fewest slots of those whose recall is within a hundredth of the best. `SAFE`, which
changes several things at once, and attention over every token are there to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration, Merge

from ..baselines import Attention
from ..data import Episode, RecallTask, alike, drifting, mislabelled, rebound
from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
from .synthetic_keys import used_seeds

TITLE = "What breaks the rule, and which settings withstand it"
QUESTION = (
    "The paper's stream is easy: items far apart, little noise, nothing that changes. What happens "
    "when keys are alike, repeats are noisy, items drift, values change or are wrong, or items are "
    "many, and which settings help?"
)
EPISODES = 15
TASK = RecallTask()
LONG, FIVE = replace(TASK, repeats=32), replace(TASK, repeats=5)
TAU = 0.3
TAUS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
PLAIN, SAFE, ALL = "plain", "safe", "every token"
CLOSE = 0.01  # recall that is not worth more slots
MEANING = {
    PLAIN: "tau .3, first key, first value, not centred",
    SAFE: "tau .3, ema key at pace .3, last value, centred",
}

Stream = Callable[[np.random.Generator], Episode]
Make = Callable[[], Memory]
Place = tuple[str, float, str]  # condition, degree and setting
Found = Mapping[Place, Mapping[str, Measure]]


@dataclass(frozen=True, slots=True)
class Condition:
    """A table: streams by their degree of stress, and the settings that all see them.

    Every condition has the paper's setting (`PLAIN`). `SAFE` is the same in all conditions: the
    setting for a stream of which nothing is known.
    """

    name: str
    heading: str
    degree: str  # label of a stream, with {} for its degree
    streams: Mapping[float, Stream]
    settings: Mapping[str, Make]
    timed: bool = False
    heavy: bool = False  # one stream for each of a few seeds

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured here."""
        return ("recall", "slots/item", "bytes", *(["tokens/s"] if self.timed else []))

    @property
    def hardest(self) -> float:
        """The highest degree."""
        return max(self.streams)

    def label(self, degree: float) -> str:
        """The label of a stream."""
        return self.degree.format(degree)


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
CONDITIONS = (
    Condition(
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
    Condition(
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
    Condition(
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
    Condition(
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
    Condition(
        "rebound",
        "Keys bound again: three old values, then two new, which are right",
        "{:g} of 5 new",
        {2.0: partial(rebound, task=FIVE, renewed=2)},
        VALUES,
    ),
    Condition(
        "mislabelled",
        "Values that are wrong at random, five of each item",
        "{:g} wrong",
        {0.2: partial(mislabelled, task=FIVE, part=0.2)},
        VALUES,
    ),
    Condition(
        "tau",
        "A threshold set wrong",
        "noise {:g}",
        {s: _plain(replace(TASK, noise=s)) for s in (0.1, 0.5)},
        {at_tau(tau): _cache(tau) for tau in TAUS},
    ),
    *(
        Condition(
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
HEADINGS = {"choice": "Recommended settings at the highest degree"} | {
    condition.name: condition.heading for condition in CONDITIONS
}


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        **MEANING,
        "part_of_the_seeds": f"{scale.part:.0%}, at least 5",
        "seeds_for_many_items": f"{scale.part:.0%}, at least 2",
        "read_theta": 0.05,
        "clock": "wall, BLAS with its own threads",
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every setting of every condition on the same streams."""
    started = perf_counter()
    found = evaluate(seeds, scale, progress)
    rows = (*_recommendations(found), *_rows(found))
    result = Result(
        study="stress",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("stress", rows, **_extra(found)),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def evaluate(seeds: Sequence[int], scale: Scale, progress: Progress) -> Found:
    """The measures of every condition, stream and setting."""
    few, used = max(2, scale.of(len(seeds))), used_seeds(seeds, scale)
    steps = [
        (condition, degree, seed)
        for condition in CONDITIONS
        for degree in condition.streams
        for seed in (seeds[:few] if condition.heavy else used)
    ]
    scores: dict[Place, list[Sequence[float]]] = {}
    for done, (condition, degree, seed) in enumerate(steps, start=1):
        n_episodes = 1 if condition.heavy else scale.of(EPISODES)
        for setting, score in measure(condition, degree, seed, n_episodes).items():
            scores.setdefault((condition.name, degree, setting), []).append(score)
        progress(done, len(steps))
    names = {condition.name: condition.measures for condition in CONDITIONS}
    return {
        place: {
            name: Measure.of([score[i] for score in found])
            for i, name in enumerate(names[place[0]])
        }
        for place, found in scores.items()
    }


def measure(
    condition: Condition, degree: float, seed: int, n_episodes: int
) -> Mapping[str, Sequence[float]]:
    """Recall, slots per item, bytes and tokens per second of each setting, over some episodes."""
    totals = {setting: np.zeros(4) for setting in condition.settings}
    for j in range(n_episodes):
        episode = condition.streams[degree](np.random.default_rng((seed, j)))
        for setting, make in condition.settings.items():
            totals[setting] += trial(make(), episode)
    return {setting: (total / n_episodes).tolist() for setting, total in totals.items()}


def trial(memory: Memory, episode: Episode) -> tuple[float, float, int, float]:
    """Write the stream, ask the queries: recall, slots per item, bytes, tokens per second."""
    counts = isinstance(memory, Cache) and memory.merge.value == "counts"
    values = episode.values.argmax(axis=1) if counts else episode.values
    started = perf_counter()
    memory.write(episode.keys, values)
    seconds = perf_counter() - started
    answers = np.asarray(memory.read(episode.queries))
    answers = answers if counts else answers.argmax(axis=1)
    n_items = len(np.unique(episode.items))
    recall = float((answers == episode.answers).mean())
    return recall, len(memory) / n_items, memory.nbytes, len(episode.items) / seconds


def recommend(found: Found, condition: Condition, degree: float) -> str:
    """The setting with the fewest slots of those with about the best recall; of equals the first.

    Slots are rounded to hundredths of an item, and less than one per item counts as one. `SAFE` and
    attention are never recommended.
    """
    options = {
        setting: found[condition.name, degree, setting]
        for setting in condition.settings
        if setting not in (SAFE, ALL)
    }
    best = max(option["recall"].mean for option in options.values())
    good = [name for name in options if options[name]["recall"].mean >= best - CLOSE]
    return min(good, key=lambda name: max(1.0, round(options[name]["slots/item"].mean, 2)))


def _recommendations(found: Found) -> tuple[Row, ...]:
    """Plain, safe and the recommended setting, at the highest degree."""
    rows = []
    for condition in CONDITIONS:
        if SAFE not in condition.settings:
            continue
        chosen = recommend(found, condition, condition.hardest)
        measures = {
            f"{name} {short}": found[condition.name, condition.hardest, setting][measure]
            for measure, short in (("recall", "recall"), ("slots/item", "slots"))
            for name, setting in ((PLAIN, PLAIN), (SAFE, SAFE), ("chosen", chosen))
        }
        label = condition.label(condition.hardest)
        if not label.startswith(condition.name):
            label = f"{condition.name}: {label}"
        rows.append(Row(condition.name, label, measures, chosen, "added", "choice"))
    return tuple(rows)


def _rows(found: Found) -> tuple[Row, ...]:
    """A row for each stream and setting; the recommended one has the role of the cache."""
    rows = []
    for condition in CONDITIONS:
        for degree in condition.streams:
            chosen = recommend(found, condition, degree)
            for setting in condition.settings:
                measures = found[condition.name, degree, setting]
                role: Role = "cache" if setting == chosen else "added"
                name = f"{condition.label(degree)}, {setting}"
                rows.append(Row(name, name, measures, "", role, condition.name))
    return tuple(rows)


def _extra(found: Found) -> dict[str, float | str]:
    """Numbers of the findings that are not a single measure."""
    noisy = next(condition for condition in CONDITIONS if condition.name == "noise")
    recommended = {degree: recommend(found, noisy, degree) for degree in noisy.streams}
    extra: dict[str, float | str] = {
        "default_tau": Concentration().tau,
        **{name: MEANING[name] for name in (PLAIN, SAFE)},
        **{f"tau at {degree:g}": name for degree, name in recommended.items()},
    }
    for setting in (PLAIN, SAFE):
        met = [
            found[condition.name, degree, setting]
            for condition in CONDITIONS
            if SAFE in condition.settings
            for degree in condition.streams
        ]
        recalls = [measures["recall"].mean for measures in met]
        extra |= {
            "n_streams": len(met),
            f"{setting} worst recall": min(recalls),
            f"{setting} most slots": max(measures["slots/item"].mean for measures in met),
        }
    return extra
