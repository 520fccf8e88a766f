"""A real stream as numbers: which item came, of which class, at what time; and CSV columns."""

# L events, K distinct items

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Self

import numpy as np

from .download import DataDamaged
from .synthetic import Ints


@dataclass(frozen=True, slots=True)
class Events:
    """Events in stream order; items are numbered as they first come.

    Times are seconds since 1970. Where the source has none, an event's time is its place in the
    stream; a blank among dates is -1.

    >>> items, names = numbered(["sky", "apple", "sky"])
    >>> events = Events(items, np.array([0, 1, 0]), np.arange(3), names, ("blue", "red"), "example")
    >>> len(events), events.n_distinct, events.head(1).n_distinct
    (3, 2, 1)
    """

    items: Ints  # (L,)
    labels: Ints  # (L,), the class to recall
    times: Ints  # (L,)
    names: tuple[str, ...]  # of the K items
    classes: tuple[str, ...]  # of the labels
    source: str  # the file that was read

    def __post_init__(self) -> None:
        """Refuse columns that do not belong together."""
        lengths = {len(self.items), len(self.labels), len(self.times)}
        if len(lengths) > 1:
            raise ValueError(f"items, labels and times must be of one length, got {lengths}")

    def __len__(self) -> int:
        return len(self.items)

    @property
    def n_distinct(self) -> int:
        """Different items among the events."""
        return len(np.unique(self.items))

    def head(self, n_events: int) -> Self:
        """The first events; names and classes stay as they are."""
        items, labels, times = (
            column[:n_events] for column in (self.items, self.labels, self.times)
        )
        return replace(self, items=items, labels=labels, times=times)

    def coarse(self) -> Events:
        """The sparser stream in which the classes are the items."""
        items, order = numbered(self.classes[label] for label in self.labels)
        return Events(items, items, self.times, order, order, self.source)


def numbered(names: Iterable[str]) -> tuple[Ints, tuple[str, ...]]:
    """A number for each name, given in order of first appearance, and the names by number.

    >>> numbered(["sky", "apple", "sky"])
    (array([0, 1, 0]), ('sky', 'apple'))
    """
    seen: dict[str, int] = {}
    items = np.fromiter((seen.setdefault(name, len(seen)) for name in names), dtype=np.int64)
    return items, tuple(seen)


def windows(times: Ints, n_windows: int = 25) -> Ints:
    """The window each time falls in, (L,): windows of equal length from the first time to the last.

    >>> windows(np.array([0, 9, 10, 99, 100]), n_windows=10)
    array([0, 0, 1, 9, 9])
    """
    if n_windows < 1:
        raise ValueError(f"n_windows must be at least 1, got {n_windows}")
    if len(times) == 0:
        return np.empty(0, dtype=np.int64)
    since = times - times.min()
    place: Ints = since * n_windows // max(int(since.max()), 1)
    return place.clip(max=n_windows - 1)


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
