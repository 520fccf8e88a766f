"""Files with columns, a batch at a time: Parquet and JSON lines, here or at a URL."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..extras import install
from .parts import filesystem

BATCH = 1 << 14  # rows read at a time
Rows = tuple[NDArray[Any], NDArray[Any] | None]


def parquet_rows(place: str, key: str, value: str | None) -> Iterator[Rows]:
    """Keys and values of a Parquet file."""
    names, start = [key] if value is None else [key, value], 0
    for batch in batches(place, names):
        keys = _numbers(batch.column(key), f"column {key!r} of {place}", start)
        if keys.ndim == 1:
            raise _no_keys(f"column {key!r} of {place}", keys[0].item())
        values = None
        if value is not None:
            values = _numbers(batch.column(value), f"column {value!r} of {place}", start)
        yield keys, values
        start += len(keys)


def batches(place: str, names: list[str] | None) -> Iterator[Any]:
    """Batches of a Parquet file, of some columns or of all."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"to read Parquet: {install('scale')}") from error
    with opened(place) as file:
        parquet = ParquetFile(file)
        missing = set(names or ()) - set(parquet.schema_arrow.names)
        if missing:
            raise ValueError(
                f"{place} has no column {sorted(missing)}, but {parquet.schema_arrow.names}"
            )
        yield from parquet.iter_batches(BATCH, columns=names)


def _numbers(column: Any, name: str, start: int) -> NDArray[Any]:  # noqa: ANN401
    """A column of numbers, or of lists of equal length, as an array."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    if column.null_count:
        first = start + column.is_null().index(True).as_py()
        raise ValueError(f"{name} has {column.null_count} empty cells, the first in row {first}")
    if isinstance(column, arrow.ExtensionArray):  # a tensor, say: what it is stored as
        column = column.storage
    # Lists come in several types: those of Polars have offsets of 64 bits.
    lists = arrow.types.is_nested(column.type) and hasattr(column.type, "value_type")
    kind = column.type.value_type if lists else column.type
    is_number = (arrow.types.is_floating, arrow.types.is_integer, arrow.types.is_boolean)
    if not any(asked(kind) for asked in is_number):
        raise ValueError(
            f"{name} holds {column.type}; it must hold numbers, or lists of numbers of one length"
        )
    if not lists:
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
        raise ValueError(f"{name} has an empty place in the list of row {row}")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def json_rows(place: str, key: str, value: str | None) -> Iterator[Rows]:
    """Keys and values of JSON lines."""
    for some in objects(place):
        keys = _field(some, key, place)
        if keys.ndim != 2:
            raise _no_keys(f"{place}, line {some[0][0]}: the field {key!r}", some[0][1][key])
        yield keys, None if value is None else _field(some, value, place)


def objects(place: str) -> Iterator[list[tuple[int, Any]]]:
    """JSON lines, each with its number from 1 on, a batch at a time; blank ones are passed over."""

    def parsed(number: int, line: bytes) -> tuple[int, Any]:
        try:
            return number, json.loads(line)
        except ValueError as error:
            raise ValueError(f"{place}, line {number} is no JSON: {error}") from error

    with opened(place) as file:
        filled = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        while some := [parsed(*one) for one in islice(filled, BATCH)]:
            yield some


def _field(some: list[tuple[int, Any]], name: str, place: str) -> NDArray[Any]:
    """A field of some lines as an array."""
    try:
        found = np.array([one[name] for _, one in some])
    except (LookupError, TypeError, ValueError) as error:
        raise _misfit(some, name, place) from error
    if found.dtype.kind not in "fiub":
        raise _misfit(some, name, place)
    return found


def _misfit(some: list[tuple[int, Any]], name: str, place: str) -> ValueError:
    """The error for the first line whose field is no numbers, or not as many as in the first."""
    shape: tuple[int, ...] | None = None
    for number, one in some:
        where = f"{place}, line {number}"
        if not isinstance(one, dict) or name not in one:
            return ValueError(f"{where} is without the field {name!r}")
        try:
            row = np.array(one[name])
        except ValueError:
            row = np.array(None)
        if row.dtype.kind not in "fiub":
            told = reprlib.repr(one[name])
            return ValueError(f"{where}: the field {name!r} must hold numbers alone, got {told}")
        if row.shape != (shape := row.shape if shape is None else shape):
            return ValueError(
                f"{where}: the field {name!r} has the shape {row.shape}, those before {shape}; "
                "all must be of one length"
            )
    return ValueError(f"{place}: the field {name!r} must hold numbers alone")


def _no_keys(where: str, seen: object) -> ValueError:
    return ValueError(
        f"{where} holds {seen!r}, and a key is a list of numbers; name the field of the vectors: "
        "feed=partial(scale.rows, key=...)"
    )


def opened(place: str) -> IO[bytes]:
    """A file for reading, unpacked if its name says that it is packed."""
    plain = filesystem(place) is None and not place.endswith((".gz", ".bz2", ".xz", ".zst"))
    if plain:
        return Path(place).open("rb")
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"to open {place}: {install('scale')}") from error
    opened: IO[bytes] = fsspec.open(place, "rb", compression="infer").open()
    return opened
