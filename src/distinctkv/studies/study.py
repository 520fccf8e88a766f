"""What a study offers, and how large it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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

    def settings(self, scale: Scale) -> Mapping[str, Setting]:
        """Every number that decides the result, the seeds apart."""

    def run(self, seeds: Sequence[int], scale: Scale, progress: Progress) -> Result:
        """Measure, and check the claims."""


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""
