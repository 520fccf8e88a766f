"""What became of records."""

from __future__ import annotations

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
