"""How long a baseline would take over a long stream, from samples along it.

A naive loop over a million tokens takes hours. It does nothing but scan the slots it holds, so it
is handed the slots that the exact run held at some points of the stream, and timed there on the
tokens that came next. Time per token as a function of slots held, summed over the whole stream,
is the estimate. Where a full run is quick it is made too, and both are printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .baselines import Chunked, Naive
from .common import CHUNK, Ints, Rows, Timing, timed

POINTS, SECONDS, ROUNDS = 8, 0.2, 5


@dataclass(frozen=True)
class Exact:
    """What the exact run did: ids, slots held before each chunk and at the end, and their keys."""

    rows: Rows
    ids: Ints
    held: Ints
    keys: Rows
    similarity: float

    @property
    def middles(self) -> tuple[Ints, Ints]:
        """Slots held half-way through each chunk, and its number of tokens."""
        tokens = np.diff(np.r_[np.arange(0, len(self.rows), CHUNK), len(self.rows)])
        return (self.held[:-1] + self.held[1:]) // 2, tokens


@dataclass(frozen=True)
class Estimate:
    """Time for the whole stream, and how many of the sampled tokens got another slot."""

    time: Timing
    sampled: int
    differ: int


def estimate(kind: type[Naive] | type[Chunked], exact: Exact) -> Estimate:
    """Time of a baseline over the stream of an exact run, from samples."""
    # More of them early, where slots open fast; the last one leaves room for its tokens.
    last = max(0, len(exact.rows) // CHUNK - 1)
    points = np.unique(np.rint(np.linspace(0, 1, POINTS) ** 2 * last).astype(int))
    sizes = [_size(kind, exact, point) for point in points]
    rounds = [
        [_sample(kind, exact, point, size) for point, size in zip(points, sizes, strict=True)]
        for _ in range(ROUNDS)
    ]
    slots, which = np.unique([sample.slots for sample in rounds[0]], return_inverse=True)
    held, tokens = exact.middles
    total = []
    for clock in (0, 1):
        best = np.min([[sample.pace[clock] for sample in samples] for samples in rounds], axis=0)
        cost = np.bincount(which, best) / np.bincount(which)
        total.append(float((np.interp(held, slots, cost) * tokens).sum()))
    return Estimate(Timing(*total), sum(sizes), sum(sample.differ for sample in rounds[0]))


class Sample(NamedTuple):
    """Slots held, time per token, and tokens given another slot."""

    slots: float
    pace: Timing
    differ: int


def _size(kind: type[Naive] | type[Chunked], exact: Exact, point: int) -> int:
    """Tokens that fill the time of a sample."""
    pace = _sample(kind, exact, point, kind.grain).pace.wall
    return kind.grain * int(np.clip(SECONDS / pace / kind.grain, 1, CHUNK / kind.grain))


def _sample(kind: type[Naive] | type[Chunked], exact: Exact, point: int, n_tokens: int) -> Sample:
    part = slice(point * CHUNK, point * CHUNK + n_tokens)
    before = exact.held[point]
    memory = kind(exact.keys[:before])
    ids, time = timed(lambda: memory.write(exact.rows[part], exact.similarity))
    differ = int((ids != exact.ids[part]).sum())
    return Sample((before + memory.n) / 2, time.scaled(1 / len(ids)), differ)
