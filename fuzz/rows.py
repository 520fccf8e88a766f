"""A cache on any numbers: every row is refused or goes where the rule says, on every engine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from fuzz.drive import instrumented, main

with instrumented():
    from distinctkv import Cache, Concentration, Merge, Rule, SnapshotError
    from distinctkv.rule import unit

ENGINES = ("blocked", "sequential")
METRICS = ("cosine", "euclidean")
SEEDS = (
    bytes([0, 3]) + np.eye(3).tobytes() * 3,
    bytes([1, 2]) + np.array([[0.1, 0.2], [0.1, 0.2000001], [1e30, 1.0], [-0.0, 5e-324]]).tobytes(),
    bytes([6, 4]) + np.random.default_rng(0).standard_normal((9, 4)).tobytes(),
    bytes([7, 1]) + np.array([1.0, np.nan, -1.0, np.inf, 0.0, 1.0]).tobytes(),
)


def target(data: bytes) -> None:
    """The first byte chooses engine, metric and threshold, the second a width, the rest is rows."""
    if len(data) < 2:
        return
    engine, metric = ENGINES[data[0] & 1], METRICS[data[0] >> 1 & 1]
    tau, width = (data[0] >> 2) / 64, data[1] % 6 + 1
    numbers = np.frombuffer(data[2 : 2 + (len(data) - 2) // (8 * width) * 8 * width])
    rows = numbers.reshape(-1, width)
    cache = Cache(
        Concentration.fixed(tau), merge=Merge(), metric=metric, engine=engine, on_bad="skip"
    )
    ids = cache.write(rows)
    assert cache.seen == len(rows)
    assert cache.skipped == (ids < 0).sum()
    _follow(cache, rows[ids >= 0], ids[ids >= 0].tolist())
    _reload(cache, data)


def _follow(cache: Cache, rows: np.ndarray, ids: list[int]) -> None:
    """The rule gives the same ids."""
    rule = Rule(cache.concentration, cache.merge, cache.metric)
    keys = (unit(rows) if cache.metric == "cosine" else rows).astype(np.float32) + np.float32(0)
    assert [rule.write(key) for key in keys] == ids


def _reload(cache: Cache, data: bytes) -> None:
    """A saved cache comes back; with a byte changed it is refused or comes back the same."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache"
        cache.save(path)
        content = bytearray(path.read_bytes())
        assert len(Cache.load(path)) == len(cache)
        content[int.from_bytes(data[-3:]) % len(content)] ^= data[0] or 1
        path.write_bytes(content)
        try:
            loaded = Cache.load(path)
        except SnapshotError:
            return
        assert np.array_equal(loaded.slots.keys, cache.slots.keys)
        assert np.array_equal(loaded.slots.count, cache.slots.count)


if __name__ == "__main__":
    main(target, SEEDS)
