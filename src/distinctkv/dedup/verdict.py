"""What became of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """Whether a record is kept; if not, which kept record it repeats, and how similar it is.

    It is true if the record is kept: ``if seen.add(record): ...``. Records are numbered from 0 in
    the order in which they came. A record that was passed over as bad is not kept, repeats none,
    and has a ``reason``.
    """

    kept: bool
    number: int
    of: int | None = None  # number of the kept record that it repeats
    record: Any = None  # that kept record; None if it was a mere vector
    similarity: float | None = None  # cosine between the two, at least the one asked for
    reason: str | None = None  # why a bad one could not be compared

    def __bool__(self) -> bool:
        return self.kept

    @property
    def bad(self) -> bool:
        """Whether the record could not be compared."""
        return not self.kept and self.of is None


@dataclass(slots=True)
class Tally:
    """Records by what became of them."""

    records: int = 0
    kept: int = 0
    dropped: int = 0
    bad: int = 0  # no record, no field, or nothing to compare

    def count(self, verdicts: Sequence[Verdict]) -> None:
        """Take some more into account."""
        self.records += len(verdicts)
        self.kept += sum(verdict.kept for verdict in verdicts)
        self.bad += sum(verdict.bad for verdict in verdicts)
        self.dropped = self.records - self.kept - self.bad

    @classmethod
    def restore(cls, saved: dict[str, int]) -> Tally:
        """What a state file kept."""
        tally = cls(**saved)
        if not all(isinstance(n, int) and n >= 0 for n in saved.values()):
            raise ValueError(f"records are counted by whole numbers, got {saved}")
        return tally
