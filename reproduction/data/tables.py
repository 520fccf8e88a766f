"""Columns of CSV files, and dates as seconds."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO

import numpy as np

from .events import numbered
from .places import DataDamaged
from .synthetic import Ints


def columns(content: bytes, names: Sequence[str], what: str) -> list[tuple[str, ...]]:
    r"""The named columns of a CSV file, each from the first row to the last.

    >>> columns(b"id,colour\n1,blue\n2,red\n", ["colour", "id"], "example")
    [('blue', 'red'), ('1', '2')]
    """
    # Bytes that are not UTF-8 are kept, as lone surrogates, and can be written out again.
    text = content.decode("utf-8-sig", errors="surrogateescape")
    try:
        header, *rows = (row for row in csv.reader(StringIO(text, newline=""), strict=True) if row)
    except (csv.Error, ValueError) as error:
        raise DataDamaged(f"{what} is not a CSV file ({error})") from error
    missing = [name for name in names if name not in header]
    if missing:
        raise DataDamaged(f"{what} has no column {missing[0]}; it has {', '.join(header[:20])}")
    short = next((place for place, row in enumerate(rows, 1) if len(row) < len(header)), None)
    if short:
        raise DataDamaged(f"{what} is cut short: row {short} has less than {len(header)} fields")
    places = [header.index(name) for name in names]
    return [tuple(row[place] for row in rows) for place in places]


def seconds(dates: Sequence[str], what: str) -> Ints:
    """Seconds since 1970, -1 for a blank; a date is ``20090412`` or ``2009-04-12 10:30:00``.

    >>> seconds(["19700102", "", "1970-01-01 00:01:00"], "example")
    array([86400,    -1,    60])
    """
    places, distinct = numbered(dates)
    whole = [f"{d[:4]}-{d[4:6]}-{d[6:]}" if d.isdecimal() else d for d in distinct]
    try:
        times = np.array([d or "NaT" for d in whole], dtype="datetime64[s]")
    except ValueError as error:
        raise DataDamaged(f"{what} has a date that is none ({error})") from error
    return np.where(np.isnat(times), -1, times.astype(np.int64))[places]
