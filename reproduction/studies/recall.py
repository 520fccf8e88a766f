"""The paper's first table: recall, and the slots it takes, for six mechanisms.

A stream of 64 items, each seen 4 times with a little noise; at its end every item is asked for
once, where the paper asks for one: the means are the same, and ours are closer to them. Keys have
32 numbers, the paper's "state dim". It leaves open the noise (.1), tau (.3), theta (.05) and the
temperature of the heavy hitter's scores (.145); these are values at which its numbers appear, and
the last one was chosen for that. Rows with the role "added" are not in the paper: the same
mechanisms at better settings, and rivals of about the size of the cache. What they draw from a seed
is drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration

from ..baselines import (
    H2O,
    KNN,
    Attention,
    Based,
    Delta,
    Fourier,
    Kanerva,
    Recency,
    Redundancy,
    Ridge,
    Superposition,
)
from ..data import Episode, RecallTask
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .study import FULL, Progress, Scale, silent

TITLE = "Recall at the cost of distinct items"
QUESTION = (
    "A stream names 64 items, each four times, 256 tokens in all, and then asks for the class of "
    "an item. Which memories know it, and how much do they hold to know it?"
)
TASK = RecallTask()
EPISODES = 300
BUDGET = 64
TAU = 0.3
# Bytes of a key and a one-hot value for every item; and the most features and rows that fit in.
LEAST = 4 * TASK.n_items * (TASK.width + TASK.n_classes)
FEATURES, ROWS = 96, 36
NOTICED = 0.005  # half a unit of the last digit that the paper prints
MEASURES = ("recall", "slots", "bytes")


@dataclass(frozen=True, slots=True)
class Contender:
    """A memory in the race, and how to make an empty one."""

    name: str
    label: str
    setting: str
    make: Callable[[], Memory]
    role: Role = "paper"


CONTENDERS = (
    Contender("superposition", "Fixed state (SSM)", "sum of k vᵀ, no decay", Superposition),
    Contender("attention", "Full attention", "keeps every token", Attention),
    Contender("knn", "kNN cache", "keeps every token, 1 neighbour", KNN),
    Contender("recency", "Recency", f"B={BUDGET}", lambda: Recency(BUDGET)),
    Contender(
        "h2o",
        "Heavy hitter (H2O)",
        f"B={BUDGET}, scores at theta .145, no recent window",
        lambda: H2O(BUDGET, score_theta=0.145, recent=0),
    ),
    Contender(
        "h2o_tuned",
        "H2O, tuned",
        f"B={BUDGET}, scores at theta .1, no recent window",
        lambda: H2O(BUDGET, score_theta=0.1, recent=0),
        "added",
    ),
    Contender(
        "h2o_published",
        "H2O, published form",
        f"B={BUDGET}, scores at theta .1, {BUDGET // 2} recent",
        lambda: H2O(BUDGET, score_theta=0.1),
        "added",
    ),
    Contender(
        "redundancy",
        "Redundancy eviction",
        f"B={BUDGET}, of the two most similar tokens the older leaves",
        lambda: Redundancy(BUDGET),
        "added",
    ),
    Contender("delta", "Delta rule", "a state of the same size, rate .1", Delta, "added"),
    Contender("ridge", "Ridge state", "penalty .1, sums of k kᵀ and k vᵀ", Ridge, "added"),
    Contender(
        "fourier",
        "Fourier state",
        f"{FEATURES} random features, scale 2.5",
        lambda: Fourier(FEATURES),
        "added",
    ),
    Contender(
        "based",
        "Based state",
        "exp cut off after its square, keys projected to 16",
        lambda: Based(width=16),
        "added",
    ),
    Contender(
        "kanerva",
        "Kanerva state",
        f"{ROWS} rows and their covariance, noise .1",
        lambda: Kanerva(ROWS),
        "added",
    ),
    Contender(
        "dp",
        "Distinct items (ours)",
        f"tau {TAU}, no budget",
        lambda: Cache(Concentration.fixed(tau=TAU)),
        "cache",
    ),
)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        "queries": TASK.n_items,
        "tau": TAU,
        "budget": BUDGET,
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every contender on the same streams: recall of the answer, slots and bytes at the end."""
    started = perf_counter()
    n_episodes = scale.of(EPISODES)
    scores = np.empty((len(CONTENDERS), len(MEASURES), len(seeds), n_episodes))
    for i, seed in enumerate(seeds):
        for j in range(n_episodes):
            episode = TASK.draw(np.random.default_rng((seed, j)), n_queries=None)
            for c, contender in enumerate(CONTENDERS):
                scores[c, :, i, j] = trial(contender.make(), episode)
            progress(i * n_episodes + j + 1, len(seeds) * n_episodes)
    by_seed = scores.mean(axis=3)  # contender, measure, seed
    rows = tuple(_row(*pair) for pair in zip(CONTENDERS, by_seed, strict=True))
    result = Result(
        study="recall",
        title=TITLE,
        question=QUESTION,
        reading=reading({row.name: row for row in rows}),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        headings={"table": f"Recall, slots and bytes; a seed is the mean of {n_episodes} episodes"},
        series=tuple(
            Series(c.name, c.label, tuple(map(float, seeds)), tuple(found[0].tolist()))
            for c, found in zip(CONTENDERS, by_seed, strict=True)
        ),
    )
    return conclude(result, perf_counter() - started)


def trial(memory: Memory, episode: Episode) -> tuple[float, int, int]:
    """Write the stream, ask the queries: the part answered right, the slots, the bytes.

    >>> trial(Attention(), RecallTask(n_items=3, repeats=2).draw(np.random.default_rng(0)))
    (1.0, 6, 1152)
    """
    memory.write(episode.keys, episode.values)
    answers = np.asarray(memory.read(episode.queries)).argmax(axis=1)
    return float((answers == episode.answers).mean()), len(memory), memory.nbytes


def reading(rows: Mapping[str, Row]) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""
    mean = {
        (row.name, name): measure.mean
        for row in rows.values()
        for name, measure in row.measures.items()
    }
    one = mean["superposition", "recall"]

    def told(name: str) -> str:
        return f"{mean[name, 'recall']:.3f}, {compared(rows[name], rows['dp'])} the cache"

    return (
        f"The cache recalls {mean['dp', 'recall']:.3f}, "
        f"{compared(rows['dp'], rows['attention'])} full attention "
        f"({mean['attention', 'recall']:.3f}), from {mean['dp', 'slots']:.1f} slots in place of "
        f"{mean['attention', 'slots']:.0f}: one for each distinct item. It was not told how many "
        f"there are; the eviction rows were given a budget of {BUDGET}, exactly enough.",
        "Redundancy eviction, told to drop the older of the two most similar tokens, recalls "
        f"{told('redundancy')}, from {mean['redundancy', 'slots']:.1f} slots. It had to be "
        "told how many; the cache had to be told how similar is the same.",
        f"Slots are not bytes. The fixed state's {TASK.width} slots are {TASK.width} rows of "
        f"{TASK.n_classes}, {mean['superposition', 'bytes']:,.0f} bytes; {TASK.n_items} keys with "
        f"one-hot values are {LEAST:,} bytes, {LEAST / mean['superposition', 'bytes']:.1f} times "
        f"as many. Given no more than those, {FEATURES} Fourier features "
        f"({mean['fourier', 'bytes']:,.0f} bytes, projections included) recall "
        f"{told('fourier')}, and {ROWS} Kanerva rows ({mean['kanerva', 'bytes']:,.0f}) "
        f"{told('kanerva')}. A ridge state of {mean['ridge', 'bytes']:,.0f} bytes recalls "
        f"{told('ridge')}; the delta rule, in {mean['delta', 'bytes']:,.0f}, {told('delta')}.",
        "The bytes column counts what each memory held here: values are one-hot vectors, and the "
        f"cache also keeps counters for every slot, {mean['dp', 'bytes']:,.0f} bytes in all.",
        "Heavy-hitter eviction depends on the temperature of its scores, which the paper does not "
        f"give. We chose .145 because the paper's number appears there "
        f"({mean['h2o', 'recall']:.3f}), so that this row agrees is no evidence for it. At .1 the "
        f"same mechanism reaches {mean['h2o_tuned', 'recall']:.3f}; in its published form, with "
        f"half the budget for recent tokens, {mean['h2o_published', 'recall']:.3f}.",
        "The paper asks for one item an episode and finds a spread of .02 or .03, which is that of "
        f"{EPISODES} such questions: {sqrt(one * (1 - one) / EPISODES):.3f} at a recall of "
        f"{one:.2f}. We ask for all, so our spread is smaller; its own stays the tolerance. Beside "
        "ours stand its means over ten seeds, .82 and .71; its table prints .83 for the fixed "
        "state and .70 for recency.",
        "The paper also leaves open the noise, tau and the temperature of the read; the size of a "
        "key we take from its “32 (state dim)”. Where ours agrees, its number can be reached; that "
        "its authors used the same settings is not shown.",
        "The stream is kind: items lie in random directions, far apart, and repeats differ little, "
        "so one threshold parts them. The table says nothing about keys that are alike.",
    )


def compared(one: Row, other: Row) -> str:
    """More or less than, or as much as: a difference counts beyond .005 and both margins.

    >>> rows = [Row("", "", {"recall": Measure(r, 0.0, 9)}, "", "paper") for r in (1.0, 0.997, 0.9)]
    >>> compared(rows[1], rows[0]), compared(rows[2], rows[0]), compared(rows[0], rows[2])
    ('as much as', 'less than', 'more than')
    """
    a, b = one.measures["recall"], other.measures["recall"]
    if abs(a.mean - b.mean) <= NOTICED + a.margin + b.margin:
        return "as much as"
    return "more than" if a.mean > b.mean else "less than"


def _row(contender: Contender, by_seed: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Row:
    measures = {
        name: Measure.of(numbers.tolist()) for name, numbers in zip(MEASURES, by_seed, strict=True)
    }
    return Row(contender.name, contender.label, measures, contender.setting, contender.role)
