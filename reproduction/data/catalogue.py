"""The real streams by name: which are here, where, how long, under what licence."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

from . import loghub, mimic, movielens, synpuf
from .dataset import DataSet
from .places import DataDamaged

NAMES = ("movielens", "loghub", "mimic", "synpuf")
SINGLE: dict[str, DataSet[Sized]] = {
    one.name: one for one in (movielens.SET, mimic.SET, synpuf.SET)
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a stream on this machine."""

    name: str
    where: Path | None  # None if it is not here
    n_rows: int
    note: str
    licence: str


def entries() -> Iterator[Entry]:
    """An entry for each stream; what is here is read, so that it is known to be whole."""
    for name in NAMES:
        if name in SINGLE:
            yield _entry(name, [SINGLE[name]] if SINGLE[name].find() else [], SINGLE[name].licence)
        else:
            here = [loghub.original(system) for system in loghub.present()]
            yield _entry(name, here, loghub.LICENCE)


def members(name: str) -> list[DataSet[Sized]]:
    """The sets a name stands for; a system of Loghub has two, one for each version of its truth.

    >>> [one.name for one in members("loghub/HDFS")]
    ['loghub/HDFS', 'loghub/HDFS corrected']
    """
    if name in SINGLE:
        return [SINGLE[name]]
    group, _, system = name.partition("/")
    if group != "loghub" or system not in ("", *loghub.SYSTEMS):
        raise ValueError(
            f"there is no stream {name!r}; there are {', '.join(NAMES)}, and loghub/SYSTEM with "
            f"SYSTEM one of {', '.join(loghub.SYSTEMS)}"
        )
    systems = (system,) if system else loghub.SYSTEMS
    return [make(one) for one in systems for make in (loghub.original, loghub.corrected)]


def _entry(name: str, here: Sequence[DataSet[Sized]], licence: str) -> Entry:
    paths = [path for one in here for path in (one.find() or {}).values()]
    where = Path(os.path.commonpath([path.parent for path in paths])) if paths else None
    try:
        rows, note = sum(len(one.load()) for one in here), ""
    except DataDamaged as error:
        rows, note = 0, f"damaged: {error}"
    if name == "loghub" and not note:
        note = f"{len(here)} of {len(loghub.SYSTEMS)} systems"
    return Entry(name, where, rows, note, licence)
