"""What the benchmarks share: the stream, the clocks, the stamp of the machine, tables, results."""

# N tokens, K items to draw from, D key size

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from distinctkv import Cache, snapshot
from distinctkv.rule import unit

Ints = NDArray[np.int64]
Rows = NDArray[np.float32]
T = TypeVar("T")

CHUNK = 4096  # tokens handed to `Cache.write` at a time
NOISE, ZIPF = 0.25, 1.1
OUT = Path("out/bench")


@dataclass(frozen=True)
class Stream:
    """Unit rows (N, D) in float32, and the item that each is an occurrence of."""

    rows: Rows
    items: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Stream:
        return Stream(self.rows[part], self.items[part])

    @property
    def distinct(self) -> int:
        """Items that occur at least once."""
        return len(np.unique(self.items))


def draw(n_tokens: int, n_items: int, width: int, noise: float = NOISE, seed: int = 0) -> Stream:
    """Popular and rare items: rank r occurs in proportion to r ** -1.1, each time a bit different.

    A key is ``unit(prototype + noise / sqrt(D) * N(0, I))``.
    """
    rng = np.random.default_rng(seed)
    prototypes = unit(rng.standard_normal((n_items, width)))
    popularity = np.cumsum(np.arange(1, n_items + 1) ** -ZIPF)
    items = np.searchsorted(popularity, rng.random(n_tokens) * popularity[-1])
    rows = np.empty((n_tokens, width), np.float32)
    scale = np.float32(noise / np.sqrt(width))
    for start in range(0, n_tokens, 1 << 15):
        part = slice(start, min(start + (1 << 15), n_tokens))
        spread = rng.standard_normal((part.stop - start, width), np.float32) * scale
        rows[part] = unit(prototypes[items[part]] + spread)
    return Stream(rows, items)


def chunks(n_tokens: int, size: int = CHUNK) -> Iterable[slice]:
    """Slices that cover a stream."""
    return (slice(start, min(start + size, n_tokens)) for start in range(0, n_tokens, size))


def write(cache: Cache, rows: Rows, size: int = CHUNK) -> Ints:
    """Slot ids of a stream written in chunks."""
    return np.concatenate([cache.write(rows[part]) for part in chunks(len(rows), size)])


class Timing(NamedTuple):
    """Seconds by the clock on the wall, and seconds of this process alone."""

    wall: float
    cpu: float

    def rate(self, n_tokens: int) -> dict[str, float]:
        """The seconds, and tokens per second, as they are kept in a result."""
        rates = {"tokens_per_s": n_tokens / self.wall, "tokens_per_cpu_s": n_tokens / self.cpu}
        return {"wall": self.wall, "cpu": self.cpu, **rates}

    def scaled(self, factor: float) -> Timing:
        """Both clocks times a factor."""
        return Timing(self.wall * factor, self.cpu * factor)


def timed(run: Callable[[], T]) -> tuple[T, Timing]:
    """What ``run`` returns, and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    return result, Timing(time.perf_counter() - wall, time.process_time() - cpu)


class Race(NamedTuple):
    """What a run returned, and the time of each of its repeats."""

    result: Any
    times: list[Timing]

    @property
    def best(self) -> Timing:
        """The shortest by each clock."""
        return Timing(*(min(time[clock] for time in self.times) for clock in (0, 1)))

    def rate(self, n_tokens: int) -> dict[str, Any]:
        """The best rate as it is kept in a result, with the spread of the repeats."""
        walls = [time.wall for time in self.times]
        return self.best.rate(n_tokens) | {"repeats": len(walls), "spread": max(walls) / min(walls)}


def race(
    runs: Mapping[str, Callable[[], Any]], rounds: int = 7, patience: float = 3.0
) -> dict[str, Race]:
    """Let all runs take turns, so that a slow minute of the machine hits them all.

    A run that has had ``patience`` seconds is not repeated again.
    """
    races: dict[str, Race] = {}
    for name, run in runs.items():
        result, time = timed(run)
        races[name] = Race(result, [time])
    for _ in range(rounds - 1):
        for name, run in runs.items():
            if sum(time.wall for time in races[name].times) < patience:
                races[name].times.append(timed(run)[1])
    return races


def sgemm_peak(size: int = 2048) -> float:
    """Float operations per CPU second of a large float32 product here, the best of five."""
    a = np.random.default_rng(0).standard_normal((size, size), np.float32)
    return 2.0 * size**3 / min(timed(lambda: a @ a)[1].cpu for _ in range(5))


def stamp(*packages: str) -> dict[str, str]:
    """Machine, versions and date, printed and returned: a speed means nothing without them."""
    versions = {name: _version(name) for name in ("distinctkv", "numpy", "numba", *packages)}
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    facts = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{_cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "blas": f"{blas['name']} {blas['version']}, one thread",
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
    }
    for name, fact in facts.items():
        print(f"{name:>9}: {fact}")
    if os.getloadavg()[0] > 0.5:
        print(
            "     note: other work is running here, which makes all figures lower and less steady"
        )
    return facts


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print columns, aligned to the right."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def short(number: float) -> str:
    """A number as a reader takes it in.

    >>> [short(n) for n in (0.25, 8.312, 250, 12_345, 1_000_000)]
    ['0.25', '8.31', '250', '12.3k', '1M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def verdict(claim: str, met: bool) -> bool:
    """Print whether a figure was reached."""
    print(f"  {'met   ' if met else 'MISSED'}  {claim}")
    return met


def keep(name: str, result: dict[str, Any]) -> None:
    """Write a result to ``out/bench/<name>.json``, whole or not at all."""
    OUT.mkdir(parents=True, exist_ok=True)
    snapshot.replace(OUT / f"{name}.json", json.dumps(result, indent=1).encode() + b"\n")
