"""The templates of a job in the order in which people want to see them."""

from __future__ import annotations

from dataclasses import dataclass

from .job import Job

NEVER = ("", "")  # first and last time of a template whose lines have none


@dataclass(frozen=True, slots=True)
class Row:
    """A template; lines are numbered from 1."""

    id: int
    template: str
    count: int
    share: float
    first_line: int
    last_line: int
    first_time: str
    last_time: str
    examples: tuple[str, ...]

    @property
    def tells_more(self) -> bool:
        """Whether the first example says what the template does not."""
        return self.examples[0].split() != self.template.split()


def listing(job: Job) -> list[Row]:
    """The templates of a job, the most frequent first."""
    when = job.sightings.time
    lines = max(1, job.parser.seen)
    templates = job.parser.templates()
    spans = job.sightings.spans(job.parser.resolve)
    found = [
        Row(
            template.id,
            template.template,
            template.count,
            round(template.count / lines, 6),
            template.first_seen + 1,
            template.last_seen + 1,
            when(template.first_seen, spans.get(template.id, NEVER)[0]),
            when(template.last_seen, spans.get(template.id, NEVER)[1]),
            template.examples,
        )
        for template in templates
        if template.count
    ]
    return sorted(found, key=lambda row: (-row.count, row.id))
