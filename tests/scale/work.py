"""What workers run: they import it by name."""

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np

from distinctkv import Cache, Concentration, Merge
from distinctkv.rule import unit
from distinctkv.scale import build

make = partial(Cache, Concentration.fixed(0.4), merge=Merge(value="last"))


def stream(rng, n_tokens=4000, width=48, noise=0.25):
    """Noisy occurrences of things, popular and rare, that are as far apart as things can be.

    Things are at right angles or opposite, and noise turns each occurrence by at most 14.5 degrees:
    two of one thing have a novelty of at most .13, two of different things of at least .51.
    """
    basis = np.linalg.qr(rng.standard_normal((width, width)))[0]
    things = np.concatenate([basis, -basis])
    items = rng.zipf(1.3, n_tokens) % len(things)
    return things[items] + noise * unit(rng.standard_normal((n_tokens, width))), items


def one_pass(keys, values=None):
    """The cache of a stream that is not cut."""
    cache = make()
    cache.write(keys, values)
    return cache


def assert_alike(merged, whole):
    """Same slots, in the same order, with the same history; usage to rounding."""
    ours, theirs = merged.slots, whole.slots
    for name in ("ids", "keys", "count", "first_seen", "last_seen"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    np.testing.assert_allclose(ours.usage, theirs.usage, rtol=1e-9)
    assert merged.seen == whole.seen


def fatal(part, shard, *, marker):
    """Feed a shard, but die in the middle of the third the first time."""
    keys = np.load(shard)
    part.write(keys[: len(keys) // 2])
    if str(shard).endswith("2.npy") and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    part.write(keys[len(keys) // 2 :])


def doomed(*_):
    """Die, every time."""
    os.kill(os.getpid(), signal.SIGKILL)


def flaky(part, shard, *, marker):
    """Feed a shard, but fail as a network does the first two times."""
    tries = Path(marker)
    tries.write_text(f"{tries.read_text()}x" if tries.exists() else "x")
    part.write(np.load(shard)[:100])  # what a failed try has written must not count
    if len(tries.read_text()) < 3:
        raise OSError("connection reset")
    part.write(np.load(shard)[100:])


def saved(cache, path):
    """All of a cache's state as bytes."""
    cache.save(path)
    return path.read_bytes()


def survives(folder, map_):
    """Whether a build in which a worker is killed ends with the bytes of one left in peace."""
    shards = sorted(str(path) for path in folder.glob("*.npy"))
    calm = build(shards, make)
    marker = folder / "killed"
    told = []
    loader = partial(fatal, marker=str(marker))
    killed = build(shards, make, map_, loader=loader, progress=lambda *step: told.append(step))
    assert marker.exists()
    steps = len(shards) + 1  # few parts become one in a step
    assert told == [(step, steps) for step in range(1, steps + 1)]
    return saved(killed, folder / "killed.cache") == saved(calm, folder / "calm.cache")


def with_options(cache, _shard, **_options):
    """A loader with arguments of many kinds."""
    cache.write([1.0, 0.0])
