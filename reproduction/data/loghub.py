"""Loghub: 2,000 lines of each of 16 systems, with the event every line is an occurrence of.

A system is a folder: any folder with ``X_2k.log`` and ``X_2k.log_structured.csv`` is one. The truth
has two versions, the original and one with corrected templates. The files have no published
digests; a download must have 2,000 lines and the columns of the truth.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import numpy as np

from .download import DataDamaged, DataSet, Files, download, folders
from .events import Events, columns, numbered
from .synthetic import Ints

SYSTEMS = (
    "Android", "Apache", "BGL", "Hadoop", "HDFS", "HealthApp", "HPC", "Linux", "Mac", "OpenSSH",
    "OpenStack", "Proxifier", "Spark", "Thunderbird", "Windows", "Zookeeper",
)  # fmt: skip
N_LINES = 2_000
ORIGINAL = "https://raw.githubusercontent.com/logpai/loghub/master"
CORRECTED = "https://raw.githubusercontent.com/logpai/logparser/main/data/loghub_2k_corrected"
LICENCE = "research or academic work; cite Loghub; its notice travels with copies"
NOTICE = "loghub_2k/LICENSE"
FOLDER = re.compile(r"[A-Za-z0-9][\w-]*")


@dataclass(frozen=True, slots=True)
class Log:
    """The lines of a system and the truth about them."""

    system: str
    raw: tuple[str, ...]  # whole lines
    lines: tuple[str, ...]  # without their headers: the column Content
    event_ids: tuple[str, ...]
    templates: tuple[str, ...]  # the template of each line's event
    times: Ints  # seconds since 1970 where the log has them, else line numbers

    def __len__(self) -> int:
        return len(self.lines)

    def events(self) -> Events:
        """The lines as a stream of events; an event is its own class."""
        items, names = numbered(self.event_ids)
        return Events(items, items, self.times, names, names, f"loghub_2k/{self.system}")


def load(system: str) -> Log:
    """A system with its original truth, downloaded if it is not on this machine."""
    return original(system).load()


def load_corrected(system: str) -> Log:
    """A system with the corrected templates, downloaded if it is not on this machine."""
    return corrected(system).load()


def present() -> tuple[str, ...]:
    """The systems on this machine."""
    found = {path.parent.name for folder in folders() for path in folder.glob("loghub_2k/*/*.log")}
    return tuple(sorted(name for name in found if FOLDER.fullmatch(name) and original(name).find()))


def original(system: str) -> DataSet[Log]:
    """The set of a system's lines and its original truth."""
    truth = f"loghub_2k/{system}/{system}_2k.log_structured.csv"
    return _set(f"loghub/{system}", system, truth, ORIGINAL)


def corrected(system: str) -> DataSet[Log]:
    """The set of a system's lines and its corrected truth."""
    truth = f"loghub_2k_corrected/{system}/{system}_2k.log_structured_corrected.csv"
    return _set(f"loghub/{system} corrected", system, truth, CORRECTED)


def _set(name: str, system: str, truth: str, home: str) -> DataSet[Log]:
    if not FOLDER.fullmatch(system):
        raise ValueError(f"a system is the name of a folder, like HDFS, got {system!r}")
    log = f"loghub_2k/{system}/{system}_2k.log"
    urls = {
        log: f"{ORIGINAL}/{system}/{system}_2k.log",
        truth: f"{home}/{system}/{truth.rpartition('/')[2]}",
        NOTICE: f"{ORIGINAL}/LICENSE",
    }
    return DataSet(
        name=name,
        licence=LICENCE,
        advice=f"Put {urls[log]} as {log} and {urls[truth]} as {truth}",
        choices=((log, truth),),
        sources=(partial(_download, urls),) if system in SYSTEMS else (_unknown,),
        parse=partial(_parse, system, log, truth),
    )


def _parse(system: str, log: str, truth: str, files: Files) -> Log:
    raw = files[log].decode("utf-8-sig", "surrogateescape").split("\n")
    raw = [line.rstrip("\r") for line in (raw if raw[-1] else raw[:-1])]
    names = ["Content", "EventId", "EventTemplate"]
    dated = b"Timestamp" in files[truth].partition(b"\n")[0]
    lines, event_ids, templates, *stamps = columns(
        files[truth], [*names, "Timestamp"] if dated else names, truth
    )
    wanted = N_LINES if system in SYSTEMS else len(raw)
    if not len(raw) == len(lines) == wanted:
        raise DataDamaged(f"{log} has {len(raw)} lines, {truth} {len(lines)}; expected {wanted}")
    try:
        times = np.array(stamps[0] if stamps else range(len(raw)), dtype=np.int64)
    except ValueError as error:
        raise DataDamaged(f"{truth} has a Timestamp that is not in seconds ({error})") from error
    return Log(system, tuple(raw), lines, event_ids, templates, times)


def _download(urls: dict[str, str]) -> Files:
    return {name: download(url) for name, url in urls.items()}


def _unknown() -> Files:
    raise FileNotFoundError(f"Loghub has no such system; it has {', '.join(SYSTEMS)}")
