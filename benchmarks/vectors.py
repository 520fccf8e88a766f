"""Vector streams: our cache, a naive loop, plain chunked products, and vector indexes.

Run ``python -m benchmarks.vectors`` (a quarter of an hour), or with ``--quick`` (a minute).
"""

# N tokens, K items to draw from, D key size

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration
from distinctkv.engines.bounds import ScoreBounds

from . import indexes
from .baselines import Chunked, Naive
from .common import (
    CHUNK,
    Ints,
    Race,
    Rows,
    Stream,
    chunks,
    draw,
    keep,
    race,
    sgemm_peak,
    short,
    stamp,
    timed,
)
from .sample import Estimate, Exact, estimate
from .vectors_table import report

SIMILARITY = 0.5
CELLS = [(d, k) for d in (64, 384) for k in (1_000, 10_000, 100_000)]
QUICK = [(64, 1_000), (64, 10_000), (384, 1_000)]
INDEXED = 100_000  # tokens in the longest stream that the indexes see
FULL_BELOW = 10.0  # seconds: a baseline expected to need less is run in full
Measured = dict[str, Any]
Kind = type[Naive] | type[Chunked]


def main() -> None:
    """Measure the cells asked for, print a table, say which figures were reached."""
    asked = arguments()
    facts = stamp("faiss-cpu", "hnswlib", "usearch")
    peak = sgemm_peak()
    print(f"{'sgemm':>9}: {peak / 1e9:.0f} GFLOP/s (2048^3)\n")
    write(draw(8 * CHUNK, 1_000, 64))  # warm: imports, compilation, the clock of the processor
    cells: list[Measured] = []
    for n_tokens in asked.tokens:
        for width, n_items in asked.cells:
            cells.append(measure(width, n_items, n_tokens, peak, asked.index_seconds))
            keep("vectors", {"machine": facts, "sgemm": peak, "cells": cells})
    report(cells, asked.index_seconds)


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.vectors", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three cells of 100k tokens")
    parser.add_argument("--cells", type=_cell, nargs="+", help="as D,K: 64,1000 384,10000")
    parser.add_argument("--tokens", type=int, nargs="+", help="lengths of the streams")
    parser.add_argument("--index-seconds", type=float, help="time for each index in each cell")
    asked = parser.parse_args()
    asked.cells = asked.cells or (QUICK if asked.quick else CELLS)
    asked.tokens = asked.tokens or ([100_000] if asked.quick else [100_000, 1_000_000])
    if asked.index_seconds is None:
        asked.index_seconds = 3.0 if asked.quick else 30.0
    return asked


def _cell(text: str) -> tuple[int, int]:
    width, n_items = text.split(",")
    return int(width), int(n_items)


def measure(width: int, n_items: int, n_tokens: int, peak: float, seconds: float) -> Measured:
    """One cell: every competitor on the same rows."""
    print(f"D {width}, K {short(n_items)}, N {short(n_tokens)}", flush=True)
    stream = draw(n_tokens, n_items, width)
    with counted() as work:
        (cache, ids, held), first = timed(lambda: write(stream))
    slots = cache.slots
    exact = Exact(stream.rows, ids, held, slots.keys, SIMILARITY)
    guesses = {kind.__name__.lower(): (kind, estimate(kind, exact)) for kind in (Naive, Chunked)}
    runs: dict[str, Callable[[], Any]] = {}
    if first.wall < FULL_BELOW:
        runs["ours"] = lambda: write(stream)
    for name, (kind, guess) in guesses.items():
        if guess.time.wall < FULL_BELOW:
            runs[name] = partial(baseline, kind, stream)
    if n_tokens <= INDEXED:
        for name, make in indexes.available().items():
            runs[name] = partial(index, make, stream, seconds)
    results = race(runs)
    ours = results.pop("ours", Race(None, [first]))
    middles, tokens = exact.middles
    needed = 2.0 * width * float((middles * tokens).sum())
    cell: Measured = {
        **{"D": width, "K": n_items, "N": n_tokens, "slots": len(cache)},
        "slots_per_item": len(cache) / stream.distinct,
        "recall": float((stream.items[slots.first_seen][ids] == stream.items).mean()),
        "ours": ours.rate(n_tokens),
        "effective_share_of_sgemm": needed / ours.best.cpu / peak,
        "share_of_sgemm": sum(work) / ours.best.cpu / peak,
    }
    for name, (_, guess) in guesses.items():
        cell[name] = compare(name, exact, guess, results.pop(name, None))
    cell["indexes"] = {
        name: run.rate(run.result.tokens)
        | {"slots": run.result.slots, "cut": run.result.tokens < n_tokens}
        for name, run in results.items()
    }
    return cell


def baseline(kind: Kind, stream: Stream) -> Ints:
    """Slot ids of a baseline."""
    return kind(stream.rows[:0]).write(stream.rows, SIMILARITY)


def index(make: Callable[[int], indexes.Index], stream: Stream, seconds: float) -> indexes.Outcome:
    """What an index makes of the stream."""
    return indexes.run(make(stream.rows.shape[1]), stream.rows, SIMILARITY, seconds)


def write(stream: Stream) -> tuple[Cache, Ints, Ints]:
    """Our run: the cache, the ids, and the slots held before each chunk and at the end."""
    cache = Cache(Concentration.similar(SIMILARITY))
    ids, held = np.empty(len(stream), np.int64), [0]
    for part in chunks(len(stream)):
        ids[part] = cache.write(stream.rows[part])
        held.append(len(cache))
    return cache, ids, np.array(held)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Float operations of each product that our engine makes."""
    made: list[int] = []
    plain = ScoreBounds.scores

    def scores(self: ScoreBounds, tokens: Ints | slice, keys: Rows) -> Any:  # noqa: ANN401
        found = plain(self, tokens, keys)
        made.append(2 * found.size * keys.shape[1])
        return found

    ScoreBounds.scores = scores  # type: ignore[method-assign]
    try:
        yield made
    finally:
        ScoreBounds.scores = plain  # type: ignore[method-assign]


def compare(name: str, exact: Exact, guess: Estimate, full: Race | None) -> Measured:
    """A baseline's time, from the full run if one was made, and whether it agrees with us."""
    n_tokens = len(exact.rows)
    sampled = guess.time.rate(n_tokens)
    found, differ, compared, how = sampled, guess.differ, guess.sampled, "sampled"
    if full:
        found, compared = full.rate(n_tokens), n_tokens
        differ = int((_openers(full.result) != _openers(exact.ids)).sum())
        how = f"in full, {short(sampled['tokens_per_s'])} by samples"
    print(
        f"  {name}: {short(found['tokens_per_s'])} tokens/s {how}; "
        f"another slot than ours for {differ} of {short(compared)} tokens",
        flush=True,
    )
    return found | {"full": bool(full), "sampled": sampled, "differ": differ, "compared": compared}


def _openers(ids: Ints) -> Ints:
    """The token that opened each token's slot: equal even if one id more was given out before."""
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    return np.asarray(first[which])


if __name__ == "__main__":
    main()
