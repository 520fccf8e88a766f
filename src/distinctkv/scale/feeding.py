"""Shards and how they are read: npy, Parquet and JSON lines of keys, and logs, here or at a URL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .naming import is_part
from .parts import filesystem

BATCH = 1 << 14  # rows read at a time
Rows = tuple[NDArray[Any], NDArray[Any] | None]


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

    ``key`` and ``value`` name the columns of a Parquet file, or the fields of JSON lines.
    """
    for keys, values in read(shard, key, value):
        part.write(keys, values)


def lines(part: Any, shard: Any) -> None:  # noqa: ANN401
    """Take a shard of lines into a log parser: a file, or any lines."""
    if not isinstance(shard, str | os.PathLike):
        part.add_many(shard)
        return
    with _open(os.fspath(shard)) as file:
        while some := [line.rstrip(b"\r\n") for line in islice(file, BATCH)]:
            part.add_many(some)


def read(shard: Any, key: str, value: str | None) -> Iterator[Rows]:  # noqa: ANN401
    """Keys and values of a shard, a batch at a time."""
    if not isinstance(shard, str | os.PathLike):
        yield np.asarray(shard), None
        return
    place = os.fspath(shard)
    if place.endswith(".npy"):
        yield from _npy(place)
    elif place.endswith((".parquet", ".pq")):
        yield from _parquet(place, key, value)
    elif ".json" in place.rpartition("/")[2]:
        yield from _json(place, key, value)
    else:
        raise ValueError(
            f"{place} is of no kind known by its name: .npy, .parquet or .jsonl; give a feed="
        )


def _npy(place: str) -> Iterator[Rows]:
    if filesystem(place) is None:
        array = np.load(place, mmap_mode="r", allow_pickle=False)
    else:
        with _open(place) as file:
            array = np.load(file, allow_pickle=False)
    for start in range(0, len(array), BATCH):
        yield np.array(array[start : start + BATCH]), None


def _parquet(place: str, key: str, value: str | None) -> Iterator[Rows]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError("to read Parquet: pip install 'distinctkv[scale]'") from error
    names = [key] if value is None else [key, value]
    with _open(place) as file:
        parquet = ParquetFile(file)
        missing = set(names) - set(parquet.schema_arrow.names)
        if missing:
            raise ValueError(
                f"{place} has no column {sorted(missing)}, but {parquet.schema_arrow.names}"
            )
        for batch in parquet.iter_batches(BATCH, columns=names):
            columns = [_numbers(batch.column(name), name) for name in names]
            yield columns[0], (columns[1] if value is not None else None)


def _numbers(column: Any, name: str) -> NDArray[Any]:  # noqa: ANN401
    """A column of numbers, or of lists of equal length, as an array."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    if column.null_count:
        raise ValueError(f"column {name!r} has {column.null_count} empty cells")
    kind = column.type
    if not (arrow.types.is_list(kind) or arrow.types.is_fixed_size_list(kind)):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    lengths = compute.min_max(compute.list_value_length(column)).as_py()
    if lengths["min"] != lengths["max"]:
        raise ValueError(f"column {name!r} has lists of {lengths['min']} to {lengths['max']}")
    flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
    return flat.reshape(len(column), -1)


def _json(place: str, key: str, value: str | None) -> Iterator[Rows]:
    with _open(place) as file:
        filled = (line for line in file if line.strip())
        while some := [json.loads(line) for line in islice(filled, BATCH)]:
            try:
                keys = np.array([row[key] for row in some])
                values = None if value is None else np.array([row[value] for row in some])
            except (KeyError, TypeError) as error:
                raise ValueError(f"{place} has a line without the field {error}") from error
            yield keys, values


def _open(place: str) -> IO[bytes]:
    """A file for reading, unpacked if its name says that it is packed."""
    plain = filesystem(place) is None and not place.endswith((".gz", ".bz2", ".xz", ".zst"))
    if plain:
        return Path(place).open("rb")
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"to open {place}: pip install 'distinctkv[scale]'") from error
    opened: IO[bytes] = fsspec.open(place, "rb", compression="infer").open()
    return opened
