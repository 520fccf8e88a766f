"""Times for study ``cost``, taken in a process of its own that keeps to one thread.

A BLAS reads the number of its threads once, when it is loaded; a fresh process is the only way to
set it that every BLAS knows. `apart` starts this module with the order as its argument. The clock
is the processor time of that process, which is the time it takes on a machine with nothing else to
do, whatever else this one does.
"""

# N tokens, S slots, D key size, C value size, Q queries

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from time import get_clock_info, perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import unit

from ..data import Episode, RecallTask

# Where processor time comes in coarse ticks, the clock on the wall must do.
clock = process_time if get_clock_info("process_time").resolution <= 1e-6 else perf_counter
TURN = 0.002  # seconds
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

Singles = NDArray[np.float32]
Lap = Mapping[str, float]  # what was measured on one stream; times in microseconds


@dataclass(frozen=True, slots=True)
class Order:
    """Streams to time, of each size one for each number of repeats, and how."""

    sizes: Sequence[RecallTask]
    lengths: Sequence[int]
    batch: int
    tau: float
    theta: float
    rounds: int


def apart(order: Order, seed: int) -> list[Lap]:
    """A lap for each size and length, run by a fresh process that keeps to one thread."""
    command = [sys.executable, "-m", __name__, json.dumps([asdict(order), seed])]
    # In a session of its own, so that a key stroke stops it through us and not in mid-sentence.
    done = subprocess.run(
        command,
        env=os.environ | ONE_THREAD,
        stdout=subprocess.PIPE,
        check=True,
        start_new_session=True,
    )
    laps: list[Lap] = json.loads(done.stdout)
    return laps


def here(order: Order, seed: int) -> list[Lap]:
    """A lap for each size and length, run by this process on as many threads as it has."""
    tasks = [replace(size, repeats=r) for size in order.sizes for r in order.lengths]
    return [
        lap(order, task.draw(np.random.default_rng((seed, i)), order.batch))
        for i, task in enumerate(tasks)
    ]


def lap(order: Order, episode: Episode) -> Lap:
    """Take the stream in, then ask: all queries together, and one alone."""

    def append() -> tuple[Singles, Singles]:
        return unit(episode.keys).astype(np.float32), episode.values.astype(np.float32)

    def build() -> Cache:
        cache = Cache(Concentration.fixed(order.tau))
        cache.write(episode.keys, episode.values)
        return cache

    tokens, cache = append(), build()
    table = cache.slots
    assert table.values is not None
    slots = table.keys, table.values
    batch = episode.queries.astype(np.float32)
    one = batch[:1]

    def reader(queries: Singles, keys: Singles, values: Singles) -> Callable[[], Singles]:
        room = np.empty((len(queries), len(keys)), np.float32)
        return lambda: attend(queries, keys, values, order.theta, room)

    times = race(
        {
            "attention batch": reader(batch, *tokens),
            "cache batch": reader(batch, *slots),
            "attention single": reader(one, *tokens),
            "cache single": reader(one, *slots),
            "call": lambda: cache.read(one, order.theta),
            "append": append,
            "build": build,
        },
        order.rounds,
    )
    sizes = {
        "tokens": len(episode.keys),
        "slots": len(cache),
        "bytes": cache.nbytes,
        "attention bytes": sum(array.nbytes for array in tokens),
    }
    return {name: 1e6 * seconds for name, seconds in times.items()} | sizes


def attend(
    queries: Singles, keys: Singles, values: Singles, theta: float, weights: Singles
) -> Singles:
    """Attention in NumPy's fewest steps, (Q, D), (S, D) and (S, C) to (Q, C).

    ``weights`` (Q, S) is written to: fresh memory for it would cost the longer side more.

    >>> rows = np.eye(2, dtype=np.float32)
    >>> attend(rows, rows, np.array([[1.0], [3.0]], np.float32), 0.01, np.empty_like(rows))
    array([[1.],
           [3.]], dtype=float32)
    """
    np.matmul(queries / np.float32(theta), keys.T, out=weights)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    answers: Singles = (weights @ values) / weights.sum(axis=1, keepdims=True)
    return answers


def race(contestants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds that each takes, in its best round.

    They take turns, so that a slow moment of the machine hits them all. A turn begins with a go
    that does not count, to warm up; then a fast one goes many times, because a processor's clock is
    not to be trusted with a few microseconds.
    """
    best = dict.fromkeys(contestants, inf)
    for _ in range(rounds):
        for name, act in contestants.items():
            act()
            goes, end, start = 0, perf_counter() + TURN, clock()
            while goes == 0 or perf_counter() < end:
                act()
                goes += 1
            best[name] = min(best[name], (clock() - start) / goes)
    return best


def processor() -> str:
    """The name of this machine's processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def blas() -> str:
    """The library behind NumPy's products."""
    facts = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{facts['name']} {facts['version']}"


if __name__ == "__main__":
    told, seed = json.loads(sys.argv[1])
    sizes = [RecallTask(**size) for size in told.pop("sizes")]
    json.dump(here(Order(sizes, **told), seed), sys.stdout)
