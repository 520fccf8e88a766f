"""Shards and how they are read: npy, Parquet and JSON lines of keys, and logs, here or at a URL."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from .naming import is_part
from .parts import filesystem
from .tables import BATCH, Rows, batches, json_rows, objects, opened, parquet_rows


def files(place: str | os.PathLike[str]) -> list[str]:
    """The files in a folder and those below it, in order of their names; a file is a folder of one.

    What is hidden or begins with an underscore is passed over, files and folders alike, and so are
    the parts of a build.
    """
    place = os.fspath(place)
    if (remote := filesystem(place)) is not None:
        root = remote._strip_protocol(place).rstrip("/")
        within = {name.removeprefix(root): name for name in remote.find(place)}
        found = {end: str(remote.unstrip_protocol(name)) for end, name in within.items()}
    elif Path(place).is_dir():
        paths = (path for path in Path(place).rglob("*") if path.is_file())
        found = {path.relative_to(place).as_posix(): str(path) for path in paths}
    else:
        found = {"": place} if Path(place).exists() else {}
    kept = sorted(name for end, name in found.items() if not _passed_over(end))
    if not kept:
        raise FileNotFoundError(f"there are no files at {place}")
    return kept


def _passed_over(end: str) -> bool:
    steps = end.split("/")
    return is_part(steps[-1]) or any(step.startswith((".", "_")) for step in steps)


def rows(part: Any, shard: Any, *, key: str = "key", value: str | None = None) -> None:  # noqa: ANN401
    """Write a shard of keys into a cache: an array, or a file of them.

    ``key`` and ``value`` name the columns of a Parquet file, or the fields of JSON lines. A key is
    a list of numbers, and so a shard is rows of them.
    """
    for keys, values in read(shard, key, value):
        part.write(keys, values)


def records(part: Any, shard: Any) -> None:  # noqa: ANN401
    """Take a shard of records into a de-duplicator or novelty detector with a ``field``.

    A shard is a file of JSON lines or Parquet, or a list of records, which are kept as they are.
    """
    if not isinstance(shard, str | os.PathLike):
        part.add_many(shard)
        return
    place = os.fspath(shard)
    if place.endswith((".parquet", ".pq")):
        for batch in batches(place, None):
            part.add_many(batch.to_pylist())
    elif ".json" in place.rpartition("/")[2]:
        for some in objects(place):
            part.add_many([one for _, one in some])
    else:
        raise ValueError(
            f"{place} is of no kind known by its name: .parquet or .jsonl; lines of text are read "
            "by feed=scale.lines"
        )


def lines(part: Any, shard: Any) -> None:  # noqa: ANN401
    """Take a shard of lines into a log parser or a de-duplicator: a file, or any lines."""
    if not isinstance(shard, str | os.PathLike):
        part.add_many(shard)
        return
    with opened(os.fspath(shard)) as file:
        first = file.readline().removeprefix(BOM_UTF8)
        found = chain([first] if first else [], file)
        while some := [line.rstrip(b"\r\n") for line in islice(found, BATCH)]:
            part.add_many(some)


def read(shard: Any, key: str, value: str | None) -> Iterator[Rows]:  # noqa: ANN401
    """Keys and values of a shard, a batch at a time."""
    if not isinstance(shard, str | os.PathLike):
        try:
            array = np.asanyarray(shard)  # a mask stays, for a memory to refuse
        except ValueError as error:
            raise ValueError(
                f"a shard must be rows of keys (L, D), all of one length: {error}; keys and values "
                "together need a feed of your own, feed(part, shard)"
            ) from error
        if array.ndim != 2 and array.size:
            raise ValueError(
                f"a shard must be rows of keys (L, D), got the shape {array.shape}; "
                "one key is a shard of one row: [key]"
            )
        yield array, None
        return
    place = os.fspath(shard)
    if place.endswith(".npy"):
        yield from _npy(place)
    elif place.endswith((".parquet", ".pq")):
        yield from parquet_rows(place, key, value)
    elif ".json" in place.rpartition("/")[2]:
        yield from json_rows(place, key, value)
    else:
        raise ValueError(
            f"{place} is of no kind known by its name: .npy, .parquet or .jsonl; give a feed="
        )


def _npy(place: str) -> Iterator[Rows]:
    if filesystem(place) is None:
        array = np.load(place, mmap_mode="r", allow_pickle=False)
    else:
        with opened(place) as file:
            array = np.load(file, allow_pickle=False)
    if array.ndim != 2:
        raise ValueError(f"{place} must hold rows of keys (L, D), got the shape {array.shape}")
    for start in range(0, len(array), BATCH):
        yield np.array(array[start : start + BATCH]), None
