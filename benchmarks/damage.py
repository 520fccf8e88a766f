"""Snapshots damaged in every way: a loader refuses them, or finds them whole."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration, Merge, SnapshotError
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector

DAMAGE = ("flip", "cut", "splice", "double", "overwrite", "graft")


def mutations(n: int, rng: np.random.Generator, folder: Path) -> Counter[str]:
    """Damaged snapshots of every kind: how many are refused, load the same, are wrong."""
    kinds: list[tuple[type[Any], bytes]] = [
        (type(made), saved(made, folder / "good")) for made in victims(rng)
    ]
    fate: Counter[str] = Counter(wrong=0, crashed=0)
    for number in range(n):
        kind, content = kinds[number % len(kinds)]
        other = kinds[int(rng.integers(len(kinds)))][1]
        path = folder / "damaged"
        path.write_bytes(damage(content, other, DAMAGE[number // len(kinds) % len(DAMAGE)], rng))
        try:
            loaded = kind.load(path)
        except SnapshotError:
            fate["refused"] += 1
            continue
        except Exception:
            fate["crashed"] += 1
            continue
        # A graft may be another whole snapshot; what counts is that it is one we wrote.
        fate["the same" if saved(loaded, path) in (content, other) else "wrong"] += 1
    return fate


def victims(rng: np.random.Generator) -> list[Any]:
    """Something of each kind to damage."""
    plain, full = Cache(), Cache(Concentration.surprise(), merge=Merge("mean", "counts"))
    plain.write(rng.standard_normal((50, 4)))
    full.write(rng.standard_normal((300, 8)), rng.integers(0, 5, 300))
    parser = LogParser()
    parser.add_many(f"user {name} opened {rng.integers(99)} doors" for name in "abcdef" * 5)
    lines = [f"user {name} opened door {rng.integers(9)}" for name in "abcdef" * 5]
    seen, detector = Deduplicator(0.8), NoveltyDetector(0.8)
    seen.add_many(lines)
    detector.add_many(lines)
    return [Cache(), plain, full, parser, seen, detector]


def damage(content: bytes, other: bytes, how: str, rng: np.random.Generator) -> bytes:
    """The content with a bit flipped, or a piece cut, moved, doubled, overwritten or grafted on."""
    data = bytearray(content)
    head = 8 + struct.unpack("<Q", content[:8])[0]
    whole = head if rng.random() < 0.5 else len(data)  # half of all damage is in the header
    start = int(rng.integers(whole))
    stop = min(len(data), start + int(rng.integers(1, 200)))
    if how == "flip":
        data[start] ^= 1 << int(rng.integers(8))
    elif how == "cut":
        del data[start : stop if rng.random() < 0.5 else None]
    elif how == "splice":
        place = int(rng.integers(len(other)))
        data[start:stop] = other[place : place + int(rng.integers(1, 200))]
    elif how == "double":
        data[start:start] = data[start:stop]
    elif how == "overwrite":
        data[start:stop] = rng.bytes(stop - start)
    else:
        data[start:] = other[min(start, len(other)) :]
    return bytes(data)


def saved(thing: Any, path: Path) -> bytes:  # noqa: ANN401
    """What a thing saves."""
    thing.save(path)
    return path.read_bytes()
