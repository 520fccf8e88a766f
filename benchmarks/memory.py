"""Bytes that slots really cost, and whether a full memory grows on a long stream.

Run ``python -m benchmarks.memory`` (minutes), or with ``--quick``.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration

from .common import CHUNK, draw, keep, short, stamp, table, verdict

SIZES = (10, 100, 1_000, 10_000, 40_000)  # slots
FEW = 100  # below this a handful of spare rows weighs too much to be held to the figure
COUNTERS = 5 * 8  # id, usage, count, first and last seen
LEAN = 1.25  # times key + value + counters
BUDGET, WIDTH, N_ITEMS = 256, 64, 10_000
GROWTH = 4.0  # MB: what the allocator may wander by


def main() -> None:
    """Measure both, print them, say which figures were reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1M tokens instead of 10M")
    n_tokens = 1_000_000 if parser.parse_args().quick else 10_000_000
    facts = stamp()
    print("\nbytes per slot, every slot by a token of its own")
    sizes = [size(width, n_values) for width in (64, 384) for n_values in (0, 16)]
    rows = [row for one in sizes for row in one]
    head = ["D", "values", "slots", "needed", "held", "ratio", "worst since", "traced"]
    table(head, [[_number(cell) for cell in row.values()] for row in rows])
    print(
        "worst since: the highest ratio at any time since the line above; traced: by tracemalloc\n"
    )
    grown = growth(n_tokens)
    keep("memory", {"machine": facts, "bytes_per_slot": rows, "growth": grown})
    print()
    worst = max(row["worst"] for row in rows if row["slots"] >= FEW)
    what = f"at most {LEAN} times key + value + counters from {FEW} slots on: {worst:.3f}"
    verdict(what, worst <= LEAN)
    more = grown["rss_mb"][-1] - grown["rss_mb"][0]
    verdict(f"no growth at a fixed budget: {more:+.1f} MB, {GROWTH:g} allowed", more <= GROWTH)


def size(width: int, n_values: int) -> list[dict[str, Any]]:
    """Bytes held at some numbers of slots, for keys of a width and float32 values of a width."""
    rng = np.random.default_rng(0)
    needed = 4 * width + 4 * n_values + COUNTERS
    found, worst = [], 0.0
    gc.collect()
    tracemalloc.start()
    cache = Cache(Concentration.fixed(tau=0.01))
    for n_slots in SIZES:
        while len(cache) < n_slots:
            n_rows = min(int(rng.integers(1, 1000)), n_slots - len(cache))
            keys = rng.standard_normal((n_rows, width), np.float32)
            cache.write(keys, keys[:, :n_values] if n_values else None)
            if len(cache) >= min(FEW, n_slots):
                worst = max(worst, cache.nbytes / len(cache) / needed)
        del keys
        gc.collect()
        held, traced = cache.nbytes / len(cache), tracemalloc.get_traced_memory()[0] / len(cache)
        sizes = {"D": width, "values": n_values, "slots": len(cache), "needed": needed}
        found.append(
            sizes | {"held": held, "ratio": held / needed, "worst": worst, "traced": traced}
        )
        worst = 0.0
    tracemalloc.stop()
    return found


def growth(n_tokens: int) -> dict[str, Any]:
    """Resident memory while a long stream passes through a full budget."""
    cache = Cache(Concentration.fixed(0.5, BUDGET))
    block = draw(250_000, N_ITEMS, WIDTH).rows
    rng = np.random.default_rng(1)
    rss, step, started = [], n_tokens // 10, time.perf_counter()
    print(f"resident memory, budget {BUDGET}, D {WIDTH}, {short(n_tokens)} tokens")
    for done in range(0, n_tokens, CHUNK):
        # A stream without end: rows of the block in ever new order, a little different each time.
        keys = block[rng.integers(len(block), size=CHUNK)]
        cache.write(keys + rng.standard_normal((CHUNK, 1), np.float32) * np.float32(0.01))
        if done // step != (done + CHUNK) // step:
            rss.append(resident())
            pace = (done + CHUNK) / (time.perf_counter() - started)
            print(
                f"  {short(done + CHUNK):>6} tokens  {rss[-1]:7.1f} MB  {len(cache)} slots  "
                f"{cache.nbytes / 1e6:.2f} MB by nbytes  {short(pace)} tokens/s",
                flush=True,
            )
    return {"tokens": n_tokens, "budget": BUDGET, "rss_mb": rss}


def resident() -> float:
    """Resident memory of this process in MB; its peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1e6 if sys.platform == "darwin" else 1e3)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _number(number: float) -> str:
    return f"{number:.3f}" if isinstance(number, float) and number < 10 else f"{number:.0f}"


if __name__ == "__main__":
    main()
