"""Lines that opened a template, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from .job import Batch, Job


class Novelty(NamedTuple):
    """A line that no template fits: when it was read, what it says of itself, and how new it is."""

    time: str
    logged: str | None  # the time in the line
    id: int
    template: str
    novelty: float
    number: int  # of the line, from 1
    line: str


def novelties(job: Job, batch: Batch) -> Iterator[Novelty]:
    """Give a batch to the parser, line by line; the lines that open a template."""
    add, ids = job.parser.add, []
    for place, message in enumerate(batch.messages):
        match = add(message)
        ids.append(match.id)
        job.sample()
        if match.opened:
            yield Novelty(
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                batch.times[place] if batch.times else None,
                match.id,
                match.template,
                round(match.novelty, 4),
                batch.start + place + 1,
                batch.lines[place],
            )
    job.taken(batch, ids)
