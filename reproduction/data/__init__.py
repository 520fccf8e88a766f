"""Streams to measure memories on: drawn ones, and real ones from files."""

from __future__ import annotations

from collections.abc import Sized

from . import loghub, medical, movielens
from .download import DataDamaged, DataMissing, DataSet
from .events import Events, numbered, windows
from .mqar import SILENT, MQARTask
from .synthetic import (
    Episode,
    Ints,
    PhasedTask,
    RecallTask,
    alike,
    drifting,
    mislabelled,
    occurrences,
    rebound,
    restaurant,
    zipf,
)

NAMES = ("movielens", "loghub", "mimic", "synpuf")
SINGLE: dict[str, DataSet[Sized]] = {
    one.name: one for one in (movielens.MOVIELENS, medical.MIMIC, medical.SYNPUF)
}


def data_sets(name: str) -> list[DataSet[Sized]]:
    """The data sets of a name; a system of Loghub has two, one for each version of its truth.

    >>> [one.name for one in data_sets("loghub/HDFS")]
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


__all__ = [
    "NAMES",
    "SILENT",
    "DataDamaged",
    "DataMissing",
    "DataSet",
    "Episode",
    "Events",
    "Ints",
    "MQARTask",
    "PhasedTask",
    "RecallTask",
    "alike",
    "data_sets",
    "drifting",
    "loghub",
    "medical",
    "mislabelled",
    "movielens",
    "numbered",
    "occurrences",
    "rebound",
    "restaurant",
    "windows",
    "zipf",
]
