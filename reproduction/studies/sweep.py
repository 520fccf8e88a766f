"""Methods on the same streams: scores at every size, and recall as a curve over slots or bytes."""

# M sizes, N seeds

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from ..data import Episode, RecallTask
from ..result import Measure, Role, Row, Series
from . import Progress
from .runner import silent

MEASURES = ("recall", "slots", "bytes", "peak")
TAUS = (0.01, 0.02, 0.1, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)

Draw = Callable[[int, int], Episode]  # the episode of a seed and a number
Trial = Callable[[Memory, Episode], tuple[float, ...]]  # one score for each measure


@dataclass(frozen=True, slots=True)
class Method:
    """What a study measures: the cache, a baseline of the paper, or a baseline that we add.

    ``make()`` gives an empty memory; with ``sizes``, ``make(size)`` one of that size, and ``{}`` in
    ``setting`` stands for the size.
    """

    name: str
    label: str
    setting: str
    make: Callable[..., Any]
    sizes: tuple[float, ...] = ()
    role: Role = "added"

    def row(
        self,
        numbers: Mapping[str, Iterable[float]],
        table: str = "table",
        size: float | None = None,
        missing: str = "",
    ) -> Row:
        """A row of a table, from one number per seed for each measure."""
        measures = {name: Measure.of([*map(float, found)]) for name, found in numbers.items()}
        setting = self.setting if size is None else self.setting.format(f"{size:g}")
        return Row(self.name, self.label, measures, setting, self.role, table, missing)


CACHE = Method(
    "dp",
    "Distinct items (ours)",
    "tau {}, no budget",
    lambda tau: Cache(Concentration.fixed(tau)),
    TAUS,
    "cache",
)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The scores of a method: for each measure an array (M, N); M is 1 for a method of one size."""

    method: Method
    found: Mapping[str, Floats]

    def covers(self, size: float, cost: str = "slots") -> bool:
        """Whether a size that takes no more than this was measured, with every seed."""
        return bool(self.found[cost].max(axis=1).min() <= size)

    def at(self, size: float, cost: str = "slots") -> Floats:
        """The best recall at a number of slots, or of bytes, for each seed: (N,).

        Linear interpolation between the measured sizes, on the running maximum of recall. A size
        below the smallest one has no recall.

        >>> found = {"recall": np.array([[0.5], [0.7]]), "slots": np.array([[10.0], [20.0]])}
        >>> Curve(CACHE, found).at(15)
        array([0.6])
        """
        if not self.covers(size, cost):
            raise ValueError(f"{self.method.name} was measured at no size of {size:g} {cost}")
        order = np.argsort(self.found[cost], axis=0, kind="stable")
        costs = np.take_along_axis(self.found[cost], order, axis=0)
        recalls = np.take_along_axis(self.found["recall"], order, axis=0)
        best = np.maximum.accumulate(recalls)
        return np.array([np.interp(size, *pair) for pair in zip(costs.T, best.T, strict=True)])

    def scores(self, measure: str, size: float | None = None) -> Floats:
        """A measure at one of the sizes, for each seed: (N,)."""
        place = 0 if size is None else self.method.sizes.index(size)
        scores: Floats = self.found[measure][place]
        return scores

    def mean(self, measure: str, size: float | None = None) -> float:
        """The same, averaged over seeds."""
        return float(self.scores(measure, size).mean())

    def row(self, measures: Iterable[str], table: str = "table", size: float | None = None) -> Row:
        """One size as a row of a table."""
        return self.method.row({name: self.scores(name, size) for name in measures}, table, size)

    def series(self, cost: str) -> Series:
        """Recall against a cost, means over seeds, with the spread of recall."""
        recall = self.found["recall"]
        return Series(
            f"{self.method.name}.{cost}",
            self.method.label,
            round5(self.found[cost].mean(axis=1)),
            round5(recall.mean(axis=1)),
            round5(recall.std(axis=1, ddof=1)),
        )


def score(memory: Memory, episode: Episode) -> tuple[float, int, int, int]:
    """The part of the queries answered right; slots and bytes after it; the most slots held.

    >>> from ..baselines import Recency
    >>> task = RecallTask(n_items=3, repeats=2)
    >>> score(Recency(6), task.draw(np.random.default_rng(0), n_queries=None))
    (1.0, 6, 1152, 6)
    """
    memory.write(episode.keys, episode.values)
    n_slots = len(memory)
    answers = np.asarray(memory.read(episode.queries)).argmax(axis=1)
    recall = float((answers == episode.answers).mean())
    return recall, len(memory), memory.nbytes, max(n_slots, len(memory))


def every_item(task: RecallTask) -> Draw:
    """The streams of a task, with one query for every item."""
    return lambda seed, number: task.draw(np.random.default_rng((seed, number)), n_queries=None)


def compare(
    methods: Sequence[Method],
    draw: Draw,
    seeds: Sequence[int],
    n_episodes: int = 1,
    progress: Progress = silent,
    measures: Sequence[str] = MEASURES,
    trial: Trial = score,
) -> dict[str, Curve]:
    """A curve for every method, by name; all read the same streams at all of their sizes."""
    entries = [(method, size) for method in methods for size in method.sizes or (None,)]
    scores = np.empty((len(entries), len(measures), len(seeds), n_episodes))
    for i, j in product(range(len(seeds)), range(n_episodes)):
        episode = draw(seeds[i], j)
        for e, (method, size) in enumerate(entries):
            memory = method.make() if size is None else method.make(size)
            scores[e, :, i, j] = trial(memory, episode)
            progress((i * n_episodes + j) * len(entries) + e + 1, scores[:, 0].size)
    by_seed = scores.mean(axis=3)  # entry, measure, seed
    curves = {}
    for method in methods:
        n_sizes = max(1, len(method.sizes))
        own, by_seed = by_seed[:n_sizes], by_seed[n_sizes:]
        curves[method.name] = Curve(method, dict(zip(measures, own.swapaxes(0, 1), strict=True)))
    return curves


def comma_list(numbers: Iterable[float]) -> str:
    """Numbers with commas.

    >>> comma_list([16, 0.5])
    '16, 0.5'
    """
    return ", ".join(f"{number:g}" for number in numbers)


def round5(numbers: Floats) -> tuple[float, ...]:
    """Rounded to five decimals, as series are saved."""
    return tuple(round(float(number), 5) for number in numbers)
