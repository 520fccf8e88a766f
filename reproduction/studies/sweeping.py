"""Memories of many sizes on the same streams: recall as a curve over slots, or over bytes."""

# M sizes, N seeds

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from ..data import Episode, RecallTask
from .result import Measure, Role, Row, Series
from .study import Progress, silent

MEASURES = ("recall", "slots", "bytes", "peak")
TAUS = (0.01, 0.02, 0.1, 0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A mechanism and the sizes it is run at; in ``setting``, {} stands for the size."""

    name: str
    label: str
    setting: str
    make: Callable[[float], Memory]
    sizes: tuple[float, ...]
    role: Role = "added"


CACHE = Sweep(
    "dp",
    "Distinct items (ours)",
    "tau {}, no budget",
    lambda tau: Cache(Concentration.fixed(tau)),
    TAUS,
    "cache",
)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What a sweep found: for each measure an array (M, N)."""

    sweep: Sweep
    found: Mapping[str, Floats]

    def at(self, size: float, cost: str = "slots") -> Floats:
        """The best recall at a number of slots, or of bytes, for each seed: (N,).

        Between sizes on a straight line. More cost that recalls less is no reason to recall less.

        >>> found = {"recall": np.array([[0.5], [0.7]]), "slots": np.array([[10.0], [20.0]])}
        >>> Curve(CACHE, found).at(15)
        array([0.6])
        """
        rising = np.argsort(self.found[cost], axis=0, kind="stable")
        costs = np.take_along_axis(self.found[cost], rising, axis=0)
        recalls = np.take_along_axis(self.found["recall"], rising, axis=0)
        best = np.maximum.accumulate(recalls)
        return np.array([np.interp(size, *pair) for pair in zip(costs.T, best.T, strict=True)])

    def row(self, size: float, measures: Sequence[str], table: str) -> Row:
        """One size as a row of a table."""
        sweep, place = self.sweep, self.sweep.sizes.index(size)
        numbers = {name: Measure.of(self.found[name][place].tolist()) for name in measures}
        setting = sweep.setting.format(f"{size:g}")
        return Row(sweep.name, sweep.label, numbers, setting, sweep.role, table)

    def series(self, cost: str) -> Series:
        """Recall against a cost, means over seeds, with the spread of recall."""
        recall = self.found["recall"]
        return Series(
            f"{self.sweep.name}.{cost}",
            self.sweep.label,
            _rounded(self.found[cost].mean(axis=1)),
            _rounded(recall.mean(axis=1)),
            _rounded(recall.std(axis=1, ddof=1)),
        )


def race(
    sweeps: Sequence[Sweep],
    task: RecallTask,
    seeds: Sequence[int],
    n_episodes: int,
    progress: Progress = silent,
) -> Iterator[Curve]:
    """A curve for every sweep; each memory meets the same streams, and is asked for each item."""
    entries = [(sweep, size) for sweep in sweeps for size in sweep.sizes]
    scores = np.empty((len(entries), len(MEASURES), len(seeds), n_episodes))
    for i, j in product(range(len(seeds)), range(n_episodes)):
        episode = task.draw(np.random.default_rng((seeds[i], j)), n_queries=None)
        for e, (sweep, size) in enumerate(entries):
            scores[e, :, i, j] = trial(sweep.make(size), episode)
        progress(i * n_episodes + j + 1, len(seeds) * n_episodes)
    by_seed = scores.mean(axis=3)  # entry, measure, seed
    for sweep in sweeps:
        mine, by_seed = by_seed[: len(sweep.sizes)], by_seed[len(sweep.sizes) :]
        yield Curve(sweep, dict(zip(MEASURES, mine.swapaxes(0, 1), strict=True)))


def trial(memory: Memory, episode: Episode) -> tuple[float, int, int, int]:
    """The part of the queries answered right; slots and bytes after it; the most slots held.

    >>> from ..peers import KMeans
    >>> task = RecallTask(n_items=3, repeats=2)
    >>> trial(KMeans(budget=3), task.draw(np.random.default_rng(0), n_queries=None))
    (1.0, 3, 576, 6)
    """
    memory.write(episode.keys, episode.values)
    held = len(memory)
    answers = np.asarray(memory.read(episode.queries)).argmax(axis=1)
    recall = float((answers == episode.answers).mean())
    return recall, len(memory), memory.nbytes, max(held, len(memory))


def listed(numbers: Sequence[float]) -> str:
    """Numbers with commas.

    >>> listed([16, 0.5])
    '16, 0.5'
    """
    return ", ".join(f"{number:g}" for number in numbers)


def _rounded(numbers: Floats) -> tuple[float, ...]:
    return tuple(round(float(number), 5) for number in numbers)
