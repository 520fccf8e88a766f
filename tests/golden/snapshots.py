"""Snapshots of each format version; ``python -m tests.golden.snapshots`` adds missing ones.

After the first release a file is never written again: a release that changes the format raises
`snapshot.VERSION`, runs this, and must still load what older releases wrote.
"""

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np

from distinctkv import Cache, Concentration, Merge, snapshot
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector

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


def deduplicator():
    made = Deduplicator(0.7, field="text", budget=3, on_bad="skip")
    texts = ["the door is open", "the door is open!", None, "no such file", "one", "two", "two"]
    made.add_many({"id": number, "text": text} for number, text in enumerate(texts))
    return made


def detector():
    made = NoveltyDetector(0.8, quantile=0.75, window=8, budget=4)
    made.add_many(f"door {number % 3} opened" for number in range(9))
    made.add("disk is on fire", at="10:41")
    return made


MAKERS = {
    "plain": plain,
    "counted": counted,
    "far": far,
    "parser": parser,
    "deduplicator": deduplicator,
    "detector": detector,
}
KINDS = {"parser": LogParser, "deduplicator": Deduplicator, "detector": NoveltyDetector}


def load(path):
    """What a golden file holds."""
    return KINDS.get(Path(path).stem.split("-")[0], Cache).load(path)


def facts(made):
    """What a thing remembers, as JSON."""
    told = {LogParser: _parser, Deduplicator: _deduplicator, NoveltyDetector: _detector}
    return json.loads(json.dumps(told.get(type(made), _cache)(made)))


def _parser(made):
    rows = [(row.id, row.template, row.count) for row in made.templates()]
    return {"seen": made.seen, "templates": rows}


def _deduplicator(made):
    held = [*zip(made.numbers, made.kept, made.counts, strict=True)]
    state = {"seen": made.seen, "skipped": made.skipped, "held": held}
    return state | {"is": repr(made), "setting": made.setting}


def _detector(made):
    known = {slot: astuple(one) for slot, one in made.known.items()}
    state = {"seen": made.seen, "threshold": made.threshold, "known": known}
    return state | {"is": repr(made), "similarity": made.similarity}


def _cache(made):
    slots = made.slots
    columns = {name: getattr(slots, name) for name in type(slots).__slots__}
    listed = {name: None if column is None else column.tolist() for name, column in columns.items()}
    state = {"temperature": made.temperature, "seen": made.seen, "policy": str(made.concentration)}
    return listed | state | {"merge": str(made.merge)}


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
