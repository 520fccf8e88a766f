"""A long stream through a full budget: does memory grow, does the pace fall?

Run ``python -m benchmarks.soak`` (100M tokens, a quarter of an hour), or ``--tokens 10000000``.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration

from .common import CHUNK, draw, keep, short, stamp, table, timed, verdict
from .memory import resident

BUDGET, WIDTH, N_ITEMS = 256, 64, 2_000
PARTS = 20
MEMORY, PACE = 0.05, 0.10  # what either may wander by


def main() -> int:
    """Run the stream, print a line for each part, say whether the figures were reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000_000)
    n_tokens = parser.parse_args().tokens
    facts = stamp()
    parts = soak(n_tokens)
    keep("soak", {"machine": facts, "tokens": n_tokens, "budget": BUDGET, "parts": parts})
    head = ["tokens", "RSS MB", "slots", "born", "tokens per CPU s", "per wall s"]
    names = ("tokens", "rss_mb", "slots", "born", "pace", "wall_pace")
    lines = [[short(part[name]) for name in names] for part in parts]
    print()
    table(head, lines)
    # The first part fills the budget and compiles the engine.
    rss, pace = (np.array([part[name] for part in parts[1:]]) for name in ("rss_mb", "pace"))
    spread = float(np.abs(rss / rss[0] - 1).max())
    quarter = max(1, len(pace) // 4)
    drift = float(np.median(pace[-quarter:]) / np.median(pace[:quarter]) - 1)
    met = [
        verdict(f"memory within {MEMORY:.0%}: {spread:.1%}", spread <= MEMORY),
        verdict(f"pace of the last quarter within {PACE:.0%} of the first's: {drift:+.1%}",
                drift >= -PACE),
    ]  # fmt: skip
    return met.count(False)


def soak(n_tokens: int) -> list[dict[str, Any]]:
    """Memory, slots and pace of each part of a stream whose items come and go."""
    cache, rng = Cache(Concentration.surprise(base=BUDGET, gain=BUDGET)), np.random.default_rng(1)
    block = draw(200_000, N_ITEMS, WIDTH).rows
    parts, step, spent = [], n_tokens // PARTS, np.zeros(2)
    for done in range(0, n_tokens, CHUNK):
        # Rows of the block in ever new order, turned a little further every chunk: nothing is
        # known for good, so slots are opened and evicted for as long as the stream lasts.
        keys = np.roll(block[rng.integers(len(block), size=CHUNK)], done // CHUNK // 64, axis=1)
        spent += timed(partial(cache.write, keys))[1]
        if done // step != (done + CHUNK) // step:
            wall, cpu = step / spent
            part = {"tokens": done + CHUNK, "rss_mb": resident(), "slots": len(cache)}
            parts.append(part | {"born": cache.n_opened, "pace": cpu, "wall_pace": wall})
            told = f"{short(done + CHUNK)} tokens, {part['rss_mb']:.1f} MB"
            print(f"  {told}, {short(cpu)} per CPU s, {short(wall)} per wall s", flush=True)
            spent[:] = 0
    return parts


if __name__ == "__main__":
    raise SystemExit(main())
