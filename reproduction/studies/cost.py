"""The paper's section "Cost": time to read and to build, and bytes, as a stream of K items grows.

Attention and the cache are read by the same lines of NumPy (`attend`), in float32 and from
contiguous arrays, over every token or over the slots. `Cache.read` does more, because it validates
the queries first, and is timed beside them. A time is the best of several rounds, in processor
time. The paper gives neither K, D nor the size of a batch; we use two sizes, batches and single
queries.

A BLAS reads its number of threads once, when it is loaded. So each seed is timed by a fresh process
with one thread, which runs this module with its job as the argument (`time_in_subprocess`). The
clock is the processor time of that process, so other load on the machine counts little.
"""

# K items, r repeats, N = r K tokens, S slots, D key size, C value size, Q queries

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf, log
from pathlib import Path
from statistics import fmean, median
from time import get_clock_info, perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import unit

from ..data import Episode, RecallTask
from ..result import Measure, Result, Role, Row, Series, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
from .synthetic_keys import used_seeds

TITLE = "Cost as the stream grows"
QUESTION = (
    "The items stay the same and the stream repeats them more and more often. What does a query "
    "cost, what does it cost to take the stream in, and how much is held, for the cache and for "
    "attention over every token?"
)
SIZES = (RecallTask(n_items=64, width=32), RecallTask(n_items=256, width=64))
LENGTHS = (4, 16, 32, 64, 128, 256)  # repeats of an item; the paper ends at 128
ENDS = (4, 128)  # of the paper's redundancy
GROWN = (64, 256)  # repeats between which growth is fitted, beyond the costly first tokens
BATCH = 64
ROUNDS = 15
TAU, THETA = 0.3, 0.05
# Where processor time has a coarse resolution, wall time is used.
clock = process_time if get_clock_info("process_time").resolution <= 1e-6 else perf_counter
MIN_SECONDS = 0.002  # of one timing
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

Float32 = NDArray[np.float32]
Sample = Mapping[str, float]  # of one stream: times in microseconds, and sizes
Quantity = Callable[[Sample], float]
# table -> measure -> its number from the sample of a stream
TABLES: Mapping[str, Mapping[str, Quantity]] = {
    "speedup": {
        "speed-up": lambda s: s["attention batch"] / s["cache batch"],
        "speed-up alone": lambda s: s["attention single"] / s["cache single"],
    },
    "batch": {
        "attention": lambda s: s["attention batch"] / BATCH,
        "cache": lambda s: s["cache batch"] / BATCH,
    },
    "single": {
        "attention": lambda s: s["attention single"],
        "cache": lambda s: s["cache single"],
        "Cache.read": lambda s: s["call"],
    },
    "build": {
        "build": lambda s: s["build"] / s["tokens"],
        "append": lambda s: s["append"] / s["tokens"],
        "slots": lambda s: s["slots"],
        "bytes": lambda s: s["bytes"],
        "attention bytes": lambda s: s["attention bytes"],
    },
}
HEADINGS = {
    "speedup": f"How many times faster the cache is read, by a batch of {BATCH} queries or alone; "
    "the median over streams, of each the best of its rounds",
    "rise": f"The speed-up in a batch, as the redundancy grows from {ENDS[0]} to {ENDS[1]}",
    "batch": f"Microseconds a query, in a batch of {BATCH}; medians",
    "single": "Microseconds a query, alone; medians",
    "build": "Microseconds a token to build the cache, or to append to attention; slots; bytes; "
    "medians",
    "growth": f"Growth: the power of N, from {GROWN[0]} repeats to {GROWN[1]}",
}
# row of the last table -> its label, and what grows
GROWTH: Mapping[str, tuple[str, Quantity]] = {
    "slots": ("Slots", TABLES["build"]["slots"]),
    "cache": ("Read of the cache", TABLES["batch"]["cache"]),
    "attention": ("Read of attention", TABLES["batch"]["attention"]),
    "build": ("Build of the cache", lambda s: s["build"]),
}
# size and repeats -> a timing sample for each seed
Samples = Mapping[tuple[RecallTask, int], Sequence[Sample]]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart, and the machine."""
    return {
        "scale": scale.name,
        "rounds": scale.of(ROUNDS),
        "part_of_the_seeds": f"{scale.part:.0%}, at least 5",
        "sizes": ", ".join(f"K={size.n_items} D={size.width}" for size in SIZES),
        "repeats": ", ".join(map(str, LENGTHS)),
        "n_classes": SIZES[0].n_classes,
        "noise": SIZES[0].noise,
        "tau": TAU,
        "read_theta": THETA,
        "batch": BATCH,
        "threads": 1,
        "clock": clock.__name__.replace("_", " "),
        "processor": processor(),
        "blas": blas(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Time every length of every size, each seed in a process of its own."""
    started = perf_counter()
    job = Job(SIZES, LENGTHS, BATCH, TAU, THETA, scale.of(ROUNDS))
    samples: dict[tuple[RecallTask, int], list[Sample]] = {
        (size, repeats): [] for size in SIZES for repeats in LENGTHS
    }
    used = used_seeds(seeds, scale)
    for i, seed in enumerate(used):
        for place, sample in zip(samples, time_in_subprocess(job, seed), strict=True):
            samples[place].append(sample)
        progress(i + 1, len(used))
    rows = (*_rows(samples), *_rises(samples), *_growths(samples))
    queries = queries_to_break_even(samples[SIZES[1], 128])
    break_even = (
        "Faster reads do not make up for the build here."
        if queries is None
        else f"Faster reads make up for the build after {queries:,.0f} queries, read in batches."
    )
    result = Result(
        study="cost",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs(
            "cost", rows, batch=BATCH, break_even=break_even, processor=processor(), blas=blas()
        ),
        rows=tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=_series(samples),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def queries_to_break_even(samples: Sequence[Sample]) -> float | None:
    """After how many batched queries faster reads make up for the slower build; None if never."""
    extra = fmean(s["build"] - s["append"] for s in samples)
    saved = fmean(s["attention batch"] - s["cache batch"] for s in samples) / BATCH
    return max(0.0, extra / saved) if saved > 0 else None


def growth(quantity: Quantity, short: Sample, long: Sample) -> float:
    """The p for which a quantity grows as N to the power of p between two streams.

    >>> growth(lambda s: s["tokens"] ** 2, {"tokens": 10}, {"tokens": 1000})
    2.0
    """
    tokens = long["tokens"] / short["tokens"]
    return round(log(quantity(long) / quantity(short)) / log(tokens), 12)


# Tables


def typical(numbers: Sequence[float]) -> Measure:
    """The median over streams, because other load on the machine slows down single ones.

    >>> typical([1.0, 1.0, 40.0]).mean
    1.0
    """
    return replace(Measure.of(numbers), mean=float(f"{median(numbers):.12g}"))


def _rows(samples: Samples) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"k{size.n_items}_r{repeats}",
            f"{size.n_items} items × {repeats}",
            {name: typical([*map(take, samples[size, repeats])]) for name, take in columns.items()},
            f"N = {size.n_items * repeats:,}, D = {size.width}" if table == "speedup" else "",
            "paper" if size is SIZES[0] and repeats <= ENDS[1] else "added",
            table,
        )
        for table, columns in TABLES.items()
        for size, repeats in samples
    )


def _rises(samples: Samples) -> tuple[Row, ...]:
    """For each size the ratio of the speed-ups at both ends, and how many of the steps rise."""
    lengths = [repeats for repeats in LENGTHS if repeats <= ENDS[1]]
    take = TABLES["speedup"]["speed-up"]
    rows = []
    for size in SIZES:
        lines = [
            [*map(take, seed)] for seed in zip(*(samples[size, r] for r in lengths), strict=True)
        ]
        rises = [fmean(few < more for few, more in pairwise(line)) for line in lines]
        measures = {
            f"{ENDS[1]} over {ENDS[0]}": Measure.of([line[-1] / line[0] for line in lines]),
            "steps that rise": Measure.of(rises),
        }
        name, label = f"k{size.n_items}", f"{size.n_items} items"
        role: Role = "paper" if size is SIZES[0] else "added"
        setting = f"{len(lengths) - 1} steps, D = {size.width}"
        rows.append(Row(name, label, measures, setting, role, "rise"))
    return tuple(rows)


def _growths(samples: Samples) -> tuple[Row, ...]:
    """A row for each quantity, a measure for each size."""

    def of(quantity: Quantity, size: RecallTask) -> Measure:
        ends = (samples[size, repeats] for repeats in GROWN)
        return Measure.of([growth(quantity, *pair) for pair in zip(*ends, strict=True)])

    rows = []
    for name, (label, quantity) in GROWTH.items():
        measures = {f"K={size.n_items}": of(quantity, size) for size in SIZES}
        rows.append(Row(name, label, measures, "0 is flat, 1 linear", "paper", "growth"))
    return tuple(rows)


def _series(samples: Samples) -> tuple[Series, ...]:
    """Microseconds a query in a batch against the tokens, medians over seeds."""
    return tuple(
        Series(
            f"k{size.n_items}.{name}",
            f"{size.n_items} items",
            tuple(float(repeats * size.n_items) for repeats in LENGTHS),
            tuple(median(map(take, samples[size, repeats])) for repeats in LENGTHS),
        )
        for size in SIZES
        for name, take in TABLES["batch"].items()
    )


# Timing


@dataclass(frozen=True, slots=True)
class Job:
    """What one process times: for each size, a stream of each number of repeats."""

    sizes: Sequence[RecallTask]
    lengths: Sequence[int]
    batch: int
    tau: float
    theta: float
    rounds: int


def time_in_subprocess(job: Job, seed: int) -> list[Sample]:
    """A sample for each size and length, from a fresh process with one thread."""
    command = [sys.executable, "-m", __name__, json.dumps([asdict(job), seed])]
    # In a session of its own: Ctrl-C stops it through this process, and no traceback is printed.
    done = subprocess.run(
        command,
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    samples: list[Sample] = json.loads(done.stdout)
    return samples


def time_streams(job: Job, seed: int) -> list[Sample]:
    """A sample for each size and length, timed by this process with its own threads."""
    tasks = [replace(size, repeats=r) for size in job.sizes for r in job.lengths]
    return [
        time_stream(job, task.draw(np.random.default_rng((seed, i)), job.batch))
        for i, task in enumerate(tasks)
    ]


def time_stream(job: Job, episode: Episode) -> Sample:
    """Time the build, and reads of all queries together and of one alone."""

    def append() -> tuple[Float32, Float32]:
        return unit(episode.keys).astype(np.float32), episode.values.astype(np.float32)

    def build() -> Cache:
        cache = Cache(Concentration.fixed(job.tau))
        cache.write(episode.keys, episode.values)
        return cache

    tokens, cache = append(), build()
    table = cache.slots
    assert table.values is not None
    slots = table.keys, table.values
    batch = episode.queries.astype(np.float32)
    one = batch[:1]

    def reader(queries: Float32, keys: Float32, values: Float32) -> Callable[[], Float32]:
        weights = np.empty((len(queries), len(keys)), np.float32)
        return lambda: attend(queries, keys, values, job.theta, weights)

    times = best_times(
        {
            "attention batch": reader(batch, *tokens),
            "cache batch": reader(batch, *slots),
            "attention single": reader(one, *tokens),
            "cache single": reader(one, *slots),
            "call": lambda: cache.read(one, job.theta),
            "append": append,
            "build": build,
        },
        job.rounds,
    )
    sizes = {
        "tokens": len(episode.keys),
        "slots": len(cache),
        "bytes": cache.nbytes,
        "attention bytes": sum(array.nbytes for array in tokens),
    }
    return {name: 1e6 * seconds for name, seconds in times.items()} | sizes


def attend(
    queries: Float32, keys: Float32, values: Float32, theta: float, weights: Float32
) -> Float32:
    """Attention in NumPy's fewest steps, (Q, D), (S, D) and (S, C) to (Q, C).

    ``weights`` (Q, S) is a buffer: allocating it in each call would slow down the longer side more.

    >>> rows = np.eye(2, dtype=np.float32)
    >>> attend(rows, rows, np.array([[1.0], [3.0]], np.float32), 0.01, np.empty_like(rows))
    array([[1.],
           [3.]], dtype=float32)
    """
    np.matmul(queries / np.float32(theta), keys.T, out=weights)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    answers: Float32 = (weights @ values) / weights.sum(axis=1, keepdims=True)
    return answers


def best_times(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds per call, of the best round of each.

    The calls alternate within a round, so that a slow moment of the machine affects all of them. A
    timing starts with one call that is not timed, and repeats the call for at least `MIN_SECONDS`,
    because a clock is not precise to a few microseconds.
    """
    best = dict.fromkeys(calls, inf)
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            n_calls, end, start = 0, perf_counter() + MIN_SECONDS, clock()
            while n_calls == 0 or perf_counter() < end:
                call()
                n_calls += 1
            best[name] = min(best[name], (clock() - start) / n_calls)
    return best


def processor() -> str:
    """The name of this machine's processor, or "unknown"."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def blas() -> str:
    """The BLAS that NumPy uses."""
    facts = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{facts['name']} {facts['version']}"


if __name__ == "__main__":
    given, seed = json.loads(sys.argv[1])
    sizes = [RecallTask(**size) for size in given.pop("sizes")]
    json.dump(time_streams(Job(sizes, **given), seed), sys.stdout)
