"""Records at the door: as rows, or refused before anything has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import Cache
from ..inputs import faults
from .records import Reader, RecordError, Rows, why


def admitted(reader: Reader, cache: Cache, records: list[Any] | Rows) -> Rows:
    """A row for each record to write to a cache; of bad ones that it skips, nan."""
    skip, width, first = cache.on_bad == "skip", cache.width, cache.seen
    if isinstance(records, np.ndarray) and reader.takes(records, width):
        if not skip:
            _refuse(records, records, first)
        return records
    plain = reader.plain(records)
    contents = [*records] if plain else _contents(reader, records, first, skip=skip)
    rows = reader.rows(contents, width)
    if not skip:
        _refuse(rows, contents, first)
    return rows


def _contents(reader: Reader, records: list[Any] | Rows, first: int, *, skip: bool) -> list[Any]:
    """What is compared of each record; of bad ones, nothing."""
    contents: list[Any] = []
    for number, record in enumerate(records, first):
        try:
            contents.append(reader.content(record))
        except RecordError as error:
            if not skip:
                raise RecordError(f"record {number}: {error}") from error
            contents.append(None)
    return contents


def _refuse(rows: NDArray[Any], contents: list[Any] | Rows, first: int) -> None:
    """Refuse the first record that cannot be compared."""
    for place in np.flatnonzero(faults(rows, "cosine")).tolist():
        said = why(rows[place], contents[place], rows.shape[1])
        raise RecordError(
            f"record {first + place} cannot be compared: {said}; drop it, or use on_bad='skip' to "
            "count and pass over such records"
        )
