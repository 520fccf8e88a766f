"""Loaders write a shard into a part: npy, Parquet and JSON lines, or lines of text, or a URL."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compression import check_not_utf16
from ..dedup import formats
from ..extras import install

SUFFIX = ".part"  # of the snapshots of parts
BATCH = 1 << 14  # rows written at a time
Rows = tuple[NDArray[Any], NDArray[Any] | None]


def files(place: str | os.PathLike[str]) -> list[str]:
    """The files in a folder and those below it, in order of their names; a file is a folder of one.

    Files and folders that are hidden or begin with an underscore are left out, and so are parts.
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
    kept = sorted(name for end, name in found.items() if not _is_left_out(end))
    if not kept:
        raise FileNotFoundError(f"there are no files at {place}")
    return kept


def _is_left_out(end: str) -> bool:
    return end.endswith(SUFFIX) or any(step.startswith((".", "_")) for step in end.split("/"))


def filesystem(place: str) -> Any:  # noqa: ANN401
    """The fsspec file system of a URL; None for a path."""
    if "://" not in place:
        return None
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"to reach {place}: {install('scale')}") from error
    return url_to_fs(place)[0]


def rows(part: Any, shard: Any, *, key: str = "key", value: str | None = None) -> None:  # noqa: ANN401
    """Write a shard of keys into a cache: an array, or a file of them.

    ``key`` and ``value`` name the columns of a Parquet file, or the fields of JSON lines. A key is
    a list of numbers, and so a shard is rows of them.
    """
    if not isinstance(shard, str | os.PathLike):
        try:
            array = np.asarray(shard)
        except ValueError:  # lists of different lengths, or arrays of keys and of values
            array = np.empty(1)
        part.write(_check_rows(array, "a shard"))
        return
    place = os.fspath(shard)
    for keys, values in _read_rows(place, key, value):
        part.write(keys, values)


def records(part: Any, shard: Any) -> None:  # noqa: ANN401
    """Add a shard of records to a de-duplicator or novelty detector with a ``field``.

    A shard is a file of JSON lines or Parquet, or a list of records, which are kept as they are.
    """
    if not isinstance(shard, str | os.PathLike):
        part.add_many(shard)
        return
    place = os.fspath(shard)
    if (name := _format(place)) not in ("parquet", "jsonl"):
        raise ValueError(
            f"{place} is not .parquet or .jsonl; lines of text are read by loader=scale.lines"
        )
    if name == "parquet":
        for batch in _parquet_batches(place):
            part.add_many(batch.to_pylist())
        return
    for some in formats.json_objects(_text_lines(place), place):
        part.add_many([record for _, record in some])


def lines(part: Any, shard: Any) -> None:  # noqa: ANN401
    """Add a shard of lines to a log parser or a de-duplicator: a file, or a list of lines."""
    if not isinstance(shard, str | os.PathLike):
        part.add_many(shard)
        return
    for some in _text_lines(os.fspath(shard)):
        part.add_many([line.rstrip(b"\r") for line in some])


def _format(place: str) -> str:
    return "npy" if place.endswith(".npy") else formats.detect(place, b"", None)


def _text_lines(place: str) -> Iterator[list[bytes]]:
    """Lines of a file or URL without newlines; raises for UTF-16."""
    with _open(place) as file:
        check_not_utf16(file.peek(), place)
        yield from formats.iterate_lines(file)


def _open(place: str) -> BufferedReader:
    """A file or URL, decompressed if its first bytes say that it is compressed."""
    remote = filesystem(place)
    if remote is None:
        return formats.open_input(place)
    return formats.buffered(remote.open(place, "rb"), place)


def _check_rows(array: NDArray[Any], name: str) -> NDArray[Any]:
    if array.ndim != 2 and array.size:
        raise ValueError(
            f"{name} must be rows of keys (L, D), all of one length, got the shape {array.shape}; "
            "keys and values together need a loader of your own: loader(part, shard)"
        )
    return array


def _read_rows(place: str, key: str, value: str | None) -> Iterator[Rows]:
    name = _format(place)
    if name == "npy":
        return _npy_rows(place)
    if name == "parquet":
        return _parquet_rows(place, key, value)
    if name == "jsonl":
        return _json_rows(place, key, value)
    raise ValueError(f"{place} is not .npy, .parquet or .jsonl; give a loader=")


def _npy_rows(place: str) -> Iterator[Rows]:
    if (remote := filesystem(place)) is None:
        array = np.load(place, mmap_mode="r", allow_pickle=False)
    else:
        with remote.open(place, "rb") as file:
            array = np.load(file, allow_pickle=False)
    _check_rows(array, place)
    for start in range(0, len(array), BATCH):
        yield np.array(array[start : start + BATCH]), None


def _parquet_batches(place: str, columns: list[str] | None = None) -> Iterator[Any]:
    if (remote := filesystem(place)) is None:
        yield from formats.parquet_batches(place, place, columns)
        return
    with remote.open(place, "rb") as file:
        yield from formats.parquet_batches(file, place, columns)


def _parquet_rows(place: str, key: str, value: str | None) -> Iterator[Rows]:
    start = 0
    for batch in _parquet_batches(place, [key] if value is None else [key, value]):
        keys = _column_array(batch.column(key), f"column {key!r} of {place}", start)
        if keys.ndim == 1:
            raise ValueError(_no_keys(f"column {key!r} of {place}", keys[0]))
        values = None
        if value is not None:
            values = _column_array(batch.column(value), f"column {value!r} of {place}", start)
        yield keys, values
        start += len(keys)


def _column_array(column: Any, name: str, start: int) -> NDArray[Any]:  # noqa: ANN401
    """A column of numbers, or of lists of equal length, as an array."""
    import pyarrow
    import pyarrow.compute as compute

    if isinstance(column, pyarrow.ExtensionArray):  # a tensor, say: what it is stored as
        column = column.storage
    # Lists come in several types: those of Polars have offsets of 64 bits.
    is_list = pyarrow.types.is_nested(column.type) and hasattr(column.type, "value_type")
    kind = column.type.value_type if is_list else column.type
    is_number = (pyarrow.types.is_floating, pyarrow.types.is_integer, pyarrow.types.is_boolean)
    if not any(is_one(kind) for is_one in is_number):
        raise ValueError(
            f"{name} holds {column.type}; it must hold numbers, or lists of numbers of one length"
        )
    if column.null_count:
        first = start + column.is_null().index(True).as_py()
        raise ValueError(f"{name} is empty in row {first}, and in {column.null_count - 1} others")
    if not is_list:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if (odd := np.flatnonzero(lengths != lengths[:1])).size:
        raise ValueError(
            f"{name} has lists of {lengths[0]} numbers, and of {lengths[odd[0]]} in row "
            f"{start + odd[0]}; all must be of one length"
        )
    flat = column.flatten()
    if flat.null_count:
        row = start + flat.is_null().index(True).as_py() // int(lengths[0])
        raise ValueError(f"{name}: the list of row {row} has an empty place")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def _json_rows(place: str, key: str, value: str | None) -> Iterator[Rows]:
    for some in formats.json_objects(_text_lines(place), place):
        if not some:
            continue
        keys = _field_array(some, key, place)
        if keys.ndim != 2:
            number, first = some[0]
            raise ValueError(_no_keys(f"{place}, line {number}: the field {key!r}", first[key]))
        yield keys, None if value is None else _field_array(some, value, place)


def _field_array(some: list[tuple[int, Any]], name: str, place: str) -> NDArray[Any]:
    """A field of some lines as an array; an error names the first line that does not fit."""
    arrays: list[NDArray[Any]] = []
    for number, record in some:
        where = f"{place}, line {number}"
        if not isinstance(record, dict) or name not in record:
            raise ValueError(f"{where} is without the field {name!r}")
        try:
            arrays.append(np.array(record[name]))
        except ValueError:  # lists of different lengths
            arrays.append(np.array(None))
        if arrays[-1].dtype.kind not in "fiub":
            seen = reprlib.repr(record[name])
            raise ValueError(f"{where}: the field {name!r} must hold only numbers, got {seen}")
        if arrays[-1].shape != arrays[0].shape:
            raise ValueError(
                f"{where}: the field {name!r} has the shape {arrays[-1].shape}, those before "
                f"{arrays[0].shape}; all must be of one length"
            )
    return np.stack(arrays)


def _no_keys(where: str, seen: object) -> str:
    return (
        f"{where} holds {seen!r}, and a key is a list of numbers; name the field of the vectors: "
        "loader=partial(scale.rows, key=...)"
    )
