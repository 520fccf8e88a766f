"""Saved parsers and jobs that were tampered with: they are refused, or they work."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.drive import instrumented, main

with instrumented():
    from distinctkv import Concentration, SnapshotError, snapshot
    from distinctkv.logs import LogParser
    from distinctkv.logs.headers import Header
    from distinctkv.logs.job import Job

KIND = "log parser"
ODD = (
    None,
    True,
    -1,
    0,
    1,
    7,
    10**20,
    1e300,
    math.inf,
    math.nan,
    "",
    "x",
    "<*>",
    [],
    ["x"],
    {},
    [0],
)


@cache
def _good() -> bytes:
    """A saved parser."""
    parser = LogParser(Concentration.surprise(0.3, base=20))
    parser.seed(["shut <*>"])
    parser.add_many(f"the user {name} logged in" for name in ("ann", "bob", "cas", "dee", "eve"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        job = Job([_log(folder)], parser, state=path, header=Header(r"(?P<time>\S+) ", ["time"]))
        _finish(job)
        return path.read_bytes()


def _log(folder: str) -> str:
    """A log to read, the same in each folder."""
    path = Path(folder) / "log"
    path.write_text("9:01 open 5\n9:02 open 6\n\n")
    return str(path)


def _finish(job: Job) -> None:
    """Read what is left."""
    for batch in job:
        job.parse(batch)
    job.save()


def seeds() -> tuple[bytes, ...]:
    """A good file, its texts and its state, each to be changed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        path.write_bytes(_good())
        tensors, state = snapshot.load(path, KIND)
    texts, described = tensors["texts"].tobytes(), json.dumps(state).encode()
    spoilt = (bytes([what, *range(first, 256, 37)]) for what in (3, 4, 5) for first in range(7))
    return b"\0" + _good(), b"\1" + texts, b"\2" + described, *spoilt


def _spots(tree: object) -> Iterator[tuple[Any, Any]]:
    """Every list or dictionary in a JSON tree, with each place in it."""
    places = enumerate(tree) if isinstance(tree, list) else getattr(tree, "items", tuple)()
    for place, below in list(places):
        yield tree, place
        yield from _spots(below)


def _spoil(tree: object, choices: bytes) -> None:
    """Put odd values at some places of a JSON tree."""
    for where, what in zip(choices[::2], choices[1::2], strict=False):
        spots = list(_spots(tree))
        holder, place = spots[where * len(spots) // 256]
        holder[place] = ODD[what % len(ODD)]


def _write(path: Path, data: bytes) -> None:
    """A file of these bytes; or a good file, but for its texts, its state or its numbers."""
    what, rest = data[0] % 6, data[1:]
    if what == 0:
        path.write_bytes(rest)
        return
    path.write_bytes(_good())
    tensors, state = snapshot.load(path, KIND)
    if what == 1:
        tensors["texts"] = np.frombuffer(rest, np.uint8)
    elif what == 2:
        state = json.loads(rest)
    elif what == 3:
        _spoil(state, rest[:8])
    elif what == 4:
        texts = json.loads(tensors["texts"].tobytes())
        _spoil(texts, rest[:8])
        tensors["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    else:
        name = sorted(tensors)[len(rest) % len(tensors)]
        raw = bytearray(tensors[name].tobytes())
        raw[: len(rest)] = rest[: len(raw)]
        tensors[name] = np.frombuffer(bytes(raw), tensors[name].dtype)
    snapshot.save(path, KIND, tensors, state)


def target(data: bytes) -> None:
    """The first byte chooses what is changed, the rest is what it is changed to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        try:
            _write(path, data or b"\0")
        except (ValueError, RecursionError, TypeError):
            return  # not even JSON, or no state at all
        try:
            parser = LogParser.load(path)
        except SnapshotError:
            return
        before = parser.templates()
        assert len(before) == len(parser)
        assert 0 <= parser.temperature <= 1
        assert parser.seen == sum(row.count for row in before) + parser.forgotten
        parser.save(path)
        assert LogParser.load(path).templates() == before
        try:
            job = Job([_log(folder)], parser, state=path, detect_header=True)
        except SnapshotError:
            return
        _finish(job)
        _finish(Job([_log(folder)], LogParser.load(path), state=path, detect_header=True))
        assert parser.add("the user fay logged in").id == parser.match("the user fay logged in").id


if __name__ == "__main__":
    main(target, seeds())
