"""What must never happen, tried many times: each line says how often and what came of it.

Run ``python -m benchmarks.reliability`` (a quarter of an hour), or with ``--quick``.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np

from distinctkv import Cache, Concentration, Merge
from distinctkv.engines import screened
from distinctkv.policy import KeyPolicy, Metric, ValuePolicy

from . import bad, kills
from .common import keep, stamp, verdict
from .damage import mutations, saved

ENGINES = ("blocked", "sequential", "compiled", "screened")
ROOT = Path(__file__).parent.parent


def main() -> int:
    """Try everything, print the counts, and return how many figures were missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.reliability", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the tries")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    part = 100 if asked.quick else 1
    facts = stamp("safetensors")
    print()
    with tempfile.TemporaryDirectory() as name:
        told = [*tell(part, asked.seed, Path(name))]
    keep("reliability", {"machine": facts, "seed": asked.seed, "told": told})
    return sum(not line["met"] for line in told)


def tell(part: int, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Each figure with its counts, printed with whether it was reached."""

    def line(claim: str, met: bool, **counts: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"claim": claim, "met": verdict(claim, met), **counts}

    rng, n = np.random.default_rng(seed), 1000 // part
    same = round_trips(n, rng, folder)
    yield line(f"{same} of {n} round trips to the bit", same == n, tries=n, same=same)
    fate = mutations(10_000 // part, rng, folder)
    what = ", ".join(f"{number} {what}" for what, number in sorted(fate.items()))
    harmed = fate["wrong"] + fate["crashed"]
    yield line(f"{fate.total()} damaged snapshots: {what}", harmed == 0, fate=fate)
    tally = killed(10, max(1, 20 // part), seed, folder)
    what = f"{tally.kills} kills in 10 streams, {tally.in_a_save} in a save: {tally.differ} of "
    what += f"{tally.finished} ends with another state or output"
    yield line(what, tally.differ == 0 and tally.finished >= 10, tally=asdict(tally))
    fate = refused(folder)
    what = f"{len(bad.tries())} kinds of bad input on 4 engines, and of these {len(bad.KEYS)} as "
    what += f"single records: {dict(fate)}"
    yield line(what, set(fate) == {"refused"}, fate=fate)
    full = disk_full(folder)
    what = ", ".join(f"{name} {'yes' if held else 'NO'}" for name, held in full.items())
    yield line(f"disk full while saving: {what}", all(full.values()), **full)


def round_trips(n: int, rng: np.random.Generator, folder: Path) -> int:
    """Caches of any kind, saved and loaded: how many come back to the bit."""
    same = 0
    for _ in range(n):
        cache = some_cache(rng)
        path, again = folder / "first", folder / "again"
        cache.save(path)
        loaded = Cache.load(path)
        loaded.save(again)
        ahead = rng.standard_normal((5, cache.width or 3))
        values = None if cache.width is None else example(cache, rng, 5)
        ids = [one.write(ahead, values).tolist() for one in (cache, loaded)]
        same += path.read_bytes() == again.read_bytes() and ids[0] == ids[1]
    return same


def some_cache(rng: np.random.Generator) -> Cache:
    """A cache of any policy after a stream of any length, nothing at all among them."""
    merge = Merge(rng.choice(get_args(KeyPolicy)), rng.choice(get_args(ValuePolicy)))
    metric: Metric = rng.choice(get_args(Metric))
    policy = Concentration.surprise(rng.uniform(0, 1), base=int(rng.integers(1, 40)))
    if rng.random() < 0.5:
        policy = Concentration.fixed(rng.uniform(0, 1))
    centre = bool(metric == "cosine" and rng.random() < 0.3)
    cache = Cache(policy, merge=merge, metric=str(metric), centre=centre)
    n_tokens, width = int(rng.choice([0, 1, 30, 300])), int(rng.choice([1, 3, 16, 65]))
    things = rng.standard_normal((20, width))
    keys = things[rng.integers(0, 20, n_tokens)] + 0.2 * rng.standard_normal((n_tokens, width))
    cache.write(keys, example(cache, rng, n_tokens))
    return cache


def example(cache: Cache, rng: np.random.Generator, n: int) -> Any:  # noqa: ANN401
    """Values that fit a cache's merge."""
    if cache.merge.value == "counts":
        return rng.integers(-3, 9, n)
    return rng.standard_normal((n, 3))


def killed(n_streams: int, n_kills: int, seed: int, folder: Path) -> kills.Tally:
    """Streams killed again and again, all counts added up."""
    total = kills.Tally()
    for number in range(n_streams):
        place = folder / f"stream-{number}"
        place.mkdir()
        tally = kills.harass(n_kills, 100, seed + number, place)
        for name in kills.Tally.__dataclass_fields__:
            setattr(total, name, getattr(total, name) + getattr(tally, name))
    return total


def refused(folder: Path) -> Counter[str]:
    """Every kind of bad input on every engine: refused in our words, with nothing changed?"""
    fate: Counter[str] = Counter()
    for engine in ENGINES:
        for name, attempt in bad.tries().items():
            held = holder(engine)
            before = saved(held, folder / "bad")
            try:
                attempt(held)
            except (TypeError, ValueError) as error:
                whole = saved(held, folder / "bad") == before and len(str(error)) > 20
                fate["refused" if whole else f"{name}: changed"] += 1
            except Exception as error:
                fate[f"{name}: {error!r}"] += 1
            else:
                fate[f"{name}: accepted"] += 1
    return fate


def holder(engine: str) -> Cache:
    """A cache on an engine, with keys of three in it."""
    if engine != "screened":
        return bad.cache(engine)
    cache = Cache(Concentration.fixed(1e-4), engine="screened")
    rows = np.random.default_rng(0).standard_normal((400, 3))
    with patch.object(screened, "MAX_COST", np.inf):  # with three numbers it never pays
        for part in np.array_split(rows, 8):
            cache.write(part, [0] * len(part))
    return cache


def disk_full(folder: Path) -> dict[str, bool]:
    """Save more than the system lets a file hold: what of the promises was held."""
    path = folder / "full" / "cache"
    path.parent.mkdir()
    Cache().save(path)
    before = path.read_bytes()
    code = f"from benchmarks import reliability; reliability.save_too_much({str(path)!r})"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    return {
        "refused": run.returncode == 0 and "File too large" in run.stdout,
        "old snapshot whole": path.exists() and path.read_bytes() == before,
        "nothing left over": [*path.parent.iterdir()] == [path],
    }


def save_too_much(path: str) -> None:
    """In a process of its own: a limit on files stands for the disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    cache = Cache()
    cache.write(np.random.default_rng(0).standard_normal((500, 16)))
    try:
        cache.save(path)
    except OSError as error:
        print(error)


if __name__ == "__main__":
    sys.exit(main())
