"""What a study offers, how large it is run, and what it does where its data is absent.

A study of real streams never fetches them: it asks `absent` for those it needs, by the names that
``distinctkv data get`` takes. Without any of them it returns ``shelf.unmeasured(...)``; where only
some rows need what is not here, it gives those as ``Row(..., measures={}, absent="mimic")`` and
passes ``absent=`` to its `Result`. The claims on them are then "not measured": told, counted apart,
and neither held nor failed. ``settings`` has ``"data": sources(...)``, so that a result is made
again when a stream arrives or is read from another file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..data import catalogue, loghub
from .result import Result, Setting

# Told, as the run goes on, how many of how many steps are done.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """The part of a study's full size that is run; the code is the same at every scale.

    >>> QUICK.of(300), FULL.of(300), Scale("tiny", 0.001).of(300)
    (60, 300, 1)
    """

    name: str
    part: float

    def __post_init__(self) -> None:
        """Refuse a part that is no part."""
        if not 0 < self.part <= 1:
            raise ValueError(f"a scale is a part in (0, 1] of the full size, got {self.part}")

    def of(self, full: int) -> int:
        """This part of a full count, at least 1."""
        return max(1, round(full * self.part))


FULL = Scale("full", 1.0)
QUICK = Scale("quick", 0.2)


class Study(Protocol):
    """A module with these names."""

    TITLE: str
    QUESTION: str

    def settings(self, scale: Scale) -> Mapping[str, Setting]:
        """Every number that decides the result, the seeds apart."""

    def run(self, seeds: Sequence[int], scale: Scale, progress: Progress) -> Result:
        """Measure, and check the claims."""


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


def absent(*names: str) -> tuple[str, ...]:
    """Those of the named streams that are not on this machine; nothing is fetched.

    ``loghub`` is here when any of its systems is, ``loghub/HDFS`` when that one is.
    """
    return tuple(name for name in names if not _files(name))


def sources(*names: str) -> str:
    """The files that each of the named streams is read from, or "absent", as a setting."""
    return "; ".join(f"{name}: {', '.join(_files(name)) or 'absent'}" for name in names)


def _files(name: str) -> tuple[str, ...]:
    if name == "loghub":
        return loghub.present()
    # A system of Loghub is here with its original truth; the corrected one comes second.
    return tuple(catalogue.members(name)[0].find() or ())
