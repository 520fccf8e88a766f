"""Runs a target on the bytes that atheris makes up, or on random ones where it is not installed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random

try:
    import atheris
except ImportError:
    atheris = None

Target = Callable[[bytes], None]


def instrumented() -> AbstractContextManager[object]:
    """Where the package is imported so that atheris sees which branches are taken."""
    return nullcontext() if atheris is None else atheris.instrument_imports(include=["distinctkv"])


def mutate(seeds: Sequence[bytes], random: Random) -> bytes:
    """A seed with parts cut, doubled, swapped for those of another, or overwritten."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(0, 6)):
        start = random.randint(0, len(data))
        stop = min(len(data), start + random.choice((1, 2, 8, 64)))
        other = random.choice(seeds)
        place = random.randint(0, len(other))
        data[start:stop] = random.choice((
            b"", random.randbytes(stop - start), bytes(data[start:stop]) * 2,
            other[place : place + random.randint(1, 64)],
        ))  # fmt: skip
    return bytes(data)


def main(target: Target, seeds: Sequence[bytes]) -> None:
    """Run a target; it fails by raising."""
    if atheris is not None:
        with tempfile.TemporaryDirectory() as corpus:
            for number, seed in enumerate(seeds):
                Path(corpus, str(number)).write_bytes(seed)
            atheris.Setup([*sys.argv, corpus], target)
            atheris.Fuzz()
    options = argparse.ArgumentParser(description="atheris is not installed: random bytes it is")
    options.add_argument("--runs", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    random = Random(asked.seed)
    for run in range(asked.runs):
        data = mutate(seeds, random)
        try:
            target(data)
        except BaseException:
            print(f"run {run} with --seed {asked.seed} failed on {data!r}")
            raise
    print(f"{asked.runs} runs of {target.__module__} held")
