"""What is known: things, how often and when they were seen, and what a record was to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Known:
    """A thing that was seen before: how often and when, and what it was at first."""

    count: int
    first_seen: Any
    last_seen: Any
    record: Any


class Sighting(NamedTuple):
    """A record, how novel it was, and the known thing that was nearest to it.

    It is true if it is an alert: ``if detector.add(record): ...``.
    """

    number: int  # of the record, from 0
    novelty: float  # 1 - cosine to the nearest known thing; inf for the first record, nan if bad
    threshold: float  # the quantile of novelty in the recent past
    item: int | None  # id of the nearest known thing
    known: Known | None  # that thing as it was before this record
    reason: str | None = None  # why a bad one, which was passed over, could not be compared

    def __bool__(self) -> bool:
        return self.alert

    @property
    def alert(self) -> bool:
        """Whether it is more novel than the threshold allows."""
        return self.novelty > self.threshold

    @property
    def bad(self) -> bool:
        """Whether the record could not be compared."""
        return self.novelty != self.novelty


class Moment(NamedTuple):
    """A record by its number, and when it came, if that was told."""

    number: int
    at: Any = None

    @property
    def told(self) -> Any:  # noqa: ANN401
        """When it came, or else its number."""
        return self.number if self.at is None else self.at


@dataclass(frozen=True, slots=True)
class Thing:
    """A known thing, as it is kept: the numbers of its records go on when detectors merge."""

    count: int
    first: Moment
    last: Moment
    record: Any

    @property
    def known(self) -> Known:
        """As it is shown."""
        return Known(self.count, self.first.told, self.last.told, self.record)

    def again(self, moment: Moment, count: int = 1) -> Thing:
        """Seen so many times more, the last time then."""
        return replace(self, count=self.count + count, last=moment)

    def after(self, offset: int) -> Thing:
        """As if so many records had come before."""
        first, last = (one._replace(number=one.number + offset) for one in (self.first, self.last))
        return replace(self, first=first, last=last)


def check_time(at: Any) -> None:  # noqa: ANN401
    """Refuse a time that could not be saved."""
    if at is None or type(at) in (str, int, float):
        return
    try:
        json.dumps(at)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"at must be a text, a number or JSON-like, to be saved, got {type(at).__name__} "
            f"{at!r}; use at.isoformat(), str(at), int(at) or float(at)"
        ) from error
