"""Snapshots of each format version, kept for ever; ``python -m tests.golden.making`` adds them.

A file is never written again. A release that changes the format raises `snapshot.VERSION`, runs
this, and must still load what older releases wrote.
"""

import json
from pathlib import Path

import numpy as np

from distinctkv import Cache, Concentration, Merge, snapshot
from distinctkv.streams import LogParser

HERE = Path(__file__).parent


def plain():
    cache = Cache(Concentration.fixed(0.3))
    cache.write(_keys())
    return cache


def counted():
    cache = Cache(
        Concentration.surprise(base=4, gain=3), merge=Merge("mean", "counts"), centre=True
    )
    cache.write(_keys(), np.arange(12) % 3)
    return cache


def far():
    cache = Cache(Concentration.fixed(0.5), metric="euclidean", merge=Merge("ema", "mean", 0.3))
    cache.write(_keys(), _keys()[:, :2])
    return cache


def parser():
    made = LogParser(Concentration.surprise(0.3, base=20))
    made.seed(["door <*> is open"])
    made.add_many(f"user {name} opened {number} doors" for number, name in enumerate("abcabcabc"))
    made.add_many(["disk full", "disk full", "late line \udcff"])
    return made


MAKERS = {"plain": plain, "counted": counted, "far": far, "parser": parser}


def facts(made):
    """What a thing remembers, as JSON."""
    if isinstance(made, LogParser):
        rows = [(row.id, row.template, row.count) for row in made.templates()]
        return json.loads(json.dumps({"seen": made.seen, "templates": rows}))
    slots = made.slots
    columns = {name: getattr(slots, name) for name in type(slots).__slots__}
    listed = {name: None if column is None else column.tolist() for name, column in columns.items()}
    state = {"temperature": made.temperature, "seen": made.seen, "policy": str(made.concentration)}
    return json.loads(json.dumps(listed | state | {"merge": str(made.merge)}))


def _keys():
    rng = np.random.default_rng(7)
    things = rng.standard_normal((5, 4))
    return things[np.arange(12) % 5] + 0.05 * rng.standard_normal((12, 4))


if __name__ == "__main__":
    for name, make in MAKERS.items():
        path = HERE / f"{name}-{snapshot.VERSION}.safetensors"
        if not path.exists():
            made = make()
            made.save(path)
            path.with_suffix(".json").write_text(json.dumps(facts(made), indent=1) + "\n")
