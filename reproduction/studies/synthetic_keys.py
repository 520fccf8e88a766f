"""Real streams with synthetic keys: the order of items is real, the vectors are random.

Every item has a random direction, and every occurrence of it is a noisy copy: "the keys are
synthetic and the read is train-free", says the paper of its real streams. It leaves key size and
noise open; its numbers appear at 64 and .3. There is one stream of each kind, so the spread over
seeds is that of the keys alone.
"""

# L events, K items, D key size, C classes

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distinctkv.cache import Memory
from distinctkv.rule import unit

from ..data import Episode, Events, Ints, medical, movielens, occurrences
from .runner import Scale

WIDTH, NOISE = 64, 0.3
MIN_SEEDS = 5  # of a quick run
CODES = 150_000  # the first codes of DE-SynPUF, as many as the paper uses
BATCH = 256  # queries read at a time: attention over 30,000 tokens needs a large matrix
Bools = NDArray[np.bool_]


def drugs() -> Events:
    """MIMIC's prescriptions with one route for every drug, its most common one."""
    return with_one_label(medical.load_mimic().prescriptions)


# The streams of the paper whose items have keys, by their names in `reproduction.data`.
STREAMS: Mapping[str, Callable[[], Events]] = {
    "movielens": lambda: movielens.load(),
    "mimic": drugs,
    "synpuf": lambda: medical.load_synpuf().head(CODES),
}
LABELS = {"movielens": "MovieLens", "mimic": "MIMIC-IV demo", "synpuf": "DE-SynPUF"}


@dataclass(frozen=True, slots=True)
class SyntheticKeys:
    """A stream of events, and how its keys are drawn."""

    events: Events
    noise: float = NOISE
    width: int = WIDTH

    def draw(self, rng: np.random.Generator) -> Episode:
        """Keys and values for every event, and a query for every item, whose answer is its label.

        >>> items, labels = np.array([0, 1, 0]), np.array([4, 2, 4])
        >>> events = Events(items, labels, np.arange(3), ("sky", "sea"), tuple("abcde"), "")
        >>> episode = SyntheticKeys(events).draw(np.random.default_rng(0))
        >>> episode.keys.shape, episode.queries.shape, episode.answers
        ((3, 64), (2, 64), array([4, 2]))
        """
        items = self.events.items
        prototypes = unit(rng.standard_normal((self.events.n_distinct, self.width)))
        return Episode(
            keys=occurrences(rng, prototypes[items], self.noise),
            values=np.eye(len(self.events.classes))[self.events.labels],
            items=items,
            queries=occurrences(rng, prototypes, self.noise),
            answers=most_common_label(self.events),
        )


def most_common_label(events: Events) -> Ints:
    """The most frequent label of each item, (K,); in a tie the label of its first event.

    >>> items, labels = np.array([0, 0, 0, 1, 1]), np.array([1, 2, 2, 2, 1])
    >>> most_common_label(Events(items, labels, np.arange(5), ("sky", "sea"), tuple("abc"), ""))
    array([2, 2])
    """
    counts = np.zeros((events.n_distinct, len(events.classes)))
    np.add.at(counts, (events.items, events.labels), 1)
    first = np.unique(events.items, return_index=True)[1]
    counts[events.items[first], events.labels[first]] += 0.5
    labels: Ints = counts.argmax(axis=1)
    return labels


def with_one_label(events: Events) -> Events:
    """The stream with one label for every item, its most common one."""
    return replace(events, labels=most_common_label(events)[events.items])


def correct_answers(memory: Memory, episode: Episode) -> Bools:
    """Write the stream and ask for every item: which answers are correct, (K,)."""
    memory.write(episode.keys, episode.values)
    batches = [
        np.asarray(memory.read(episode.queries[start : start + BATCH])).argmax(axis=1)
        for start in range(0, len(episode.queries), BATCH)
    ]
    correct: Bools = np.concatenate(batches) == episode.answers
    return correct


def used_seeds(seeds: Sequence[int], scale: Scale) -> Sequence[int]:
    """The seeds of a long study: all at full size; the part of a quick run, at least five.

    >>> from .runner import FULL, QUICK
    >>> len(used_seeds(range(10), QUICK)), len(used_seeds(range(10), FULL))
    (5, 10)
    """
    return seeds[: max(MIN_SEEDS, scale.of(len(seeds)), scale.seeds)]
