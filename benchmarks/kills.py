"""A stream that is killed again and again ends in the same state as one that never was.

A worker writes chunks into a cache and saves it every few chunks. It is killed with SIGKILL at
random moments, in a save or out of one, and started again: it loads the last snapshot and goes on
from ``cache.seen``, with the file of ids it writes cut back to there. When a stream is through,
both files must be those of an undisturbed run.
Run ``python -m benchmarks.kills --kills 200``.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from distinctkv import Cache, Concentration, Merge

ROOT = Path(__file__).parent.parent
CHUNK, EVERY, WIDTH, N_ITEMS = 512, 4, 32, 3_000
LIFE = 0.3  # seconds of work after which a worker is killed at the latest


def work(path: Path, n_chunks: int, seed: int) -> None:
    """Write the stream into the cache at ``path`` from where its snapshot stands, to the end."""
    cache = Cache.load(path) if path.exists() else new()
    ids_of(path).touch()
    with ids_of(path).open("r+b") as out:
        out.truncate(8 * cache.seen)
        out.seek(0, os.SEEK_END)
        for number in range(cache.seen // CHUNK, n_chunks):
            out.write(cache.write(*chunk(number, seed)).tobytes())
            if (number + 1) % EVERY == 0 or number + 1 == n_chunks:
                out.flush()
                os.fsync(out.fileno())
                cache.save(path)


def ids_of(path: Path) -> Path:
    """The output of a stream: the slot id of every token."""
    return path.with_suffix(".ids")


def new() -> Cache:
    """A cache with as much state as there is: centred keys, mean values, usage."""
    return Cache(Concentration.fixed(0.4), merge=Merge(value="mean"), centre=True)


def chunk(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The same keys and values for a chunk, whoever asks and when."""
    items = np.random.default_rng([seed, number, 0]).zipf(1.3, CHUNK) % N_ITEMS
    prototypes = np.random.default_rng([seed]).standard_normal((N_ITEMS, WIDTH))
    noise = np.random.default_rng([seed, number, 1]).standard_normal((CHUNK, WIDTH))
    keys = prototypes[items] + 0.25 * noise
    return keys.astype(np.float32), keys[:, :4]


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    in_a_save: int = 0  # a half-written file was left behind
    resumed: int = 0  # starts that found a snapshot
    finished: int = 0  # streams that came to their end
    differ: int = 0  # of those, with a state or an output unlike the undisturbed one's


def harass(n_kills: int, n_chunks: int, seed: int, folder: Path) -> Tally:
    """Kill workers at random moments until there were so many kills, then let the last one end."""
    rng, tally = np.random.default_rng(seed), Tally()
    calm, path = folder / "calm.cache", folder / "killed.cache"
    began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    live(calm, n_chunks, seed, None)
    longest = min(LIFE, (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began) / 4)
    known: set[Path] = set()  # half-written files, seen and counted
    while True:
        tally.resumed += path.exists()
        spared = tally.kills == n_kills
        if live(path, n_chunks, seed, None if spared else rng.uniform(0, longest)):
            tally.finished += 1
            pairs = ((path, calm), (ids_of(path), ids_of(calm)))
            tally.differ += any(one.read_bytes() != other.read_bytes() for one, other in pairs)
            if spared:
                return tally
            path.unlink()
        else:
            tally.kills += 1
            left = set(folder.glob(".*.part"))
            tally.in_a_save += bool(left - known)
            known |= left


def live(path: Path, n_chunks: int, seed: int, seconds: float | None) -> bool:
    """Run a worker and kill it after so many seconds of its own time; did it come to its end?"""
    command = [sys.executable, "-m", "benchmarks.kills", "--worker", str(path)]
    sizes = ["--chunks", str(n_chunks), "--seed", str(seed)]
    with subprocess.Popen([*command, *sizes], cwd=ROOT, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()  # its imports are done
        if seconds is not None and _lasts(worker, seconds):
            worker.kill()
            return False
        code = worker.wait()
    if code:
        raise RuntimeError(f"the worker failed with status {code}; its error is above")
    return True


def _lasts(worker: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a worker has worked so long by its own clock; False if it ends before."""
    clock = (~worker.pid << 3) | 2  # of a process's time, as Linux numbers them
    end = time.clock_gettime(clock) + seconds
    while worker.poll() is None:
        if time.clock_gettime(clock) >= end:
            return True
        time.sleep(0.001)
    return False


def main() -> int:
    """Be the worker, or harass one."""
    parser = argparse.ArgumentParser(prog="benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--chunks", type=int, default=400, help=f"of {CHUNK} tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print("ready", flush=True)
        work(asked.worker, asked.chunks, asked.seed)
        return 0
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = harass(asked.kills, asked.chunks, asked.seed, Path(folder))
    print(
        f"{tally.kills} kills, {tally.in_a_save} of them in a save; {tally.resumed} starts from a "
        f"snapshot; {tally.finished} streams of {asked.chunks * CHUNK} tokens finished, "
        f"{tally.differ} unlike the undisturbed one; {time.perf_counter() - began:.0f} s"
    )
    return tally.differ


if __name__ == "__main__":
    sys.exit(main())
