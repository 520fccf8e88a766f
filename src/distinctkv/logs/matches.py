"""What a parser says about a line, and about a template."""

from __future__ import annotations

from dataclasses import dataclass

from .leaves import Leaf, Template
from .lines import Reader, uncoloured
from .spelling import aligned, gives_back, values

EXAMPLES = 3


class LogMatch:
    """The template of a line under its id, and whether the line opened it or changed its text.

    ``novelty`` is the distance of the line from what was known before, 0 for a repeat.
    """

    __slots__ = ("_line", "_spelling", "changed", "id", "novelty", "opened", "template")

    def __init__(self, leaf: Leaf, line: str, novelty: float = 0.0) -> None:
        own = leaf.template
        assert own is not None
        template = own if own.into is None else own.final()
        self.id, self.template = template.id, template.text
        self.novelty, self.opened, self.changed = novelty, False, False
        self._line, self._spelling = line, own.spelling

    @property
    def parameters(self) -> tuple[str, ...]:
        """The values in the line, in the order of the wildcards of the template.

        A line that `match` sees for the first time may have more of them than the template shows.
        """
        line = uncoloured(self._line)
        found = values(self._spelling, Reader().read(line))
        if gives_back(self.template, found, line):
            return found
        # With its numbers a line may be cut in another way than without, as templates are.
        fitting = aligned(self.template, " ".join(line.split()))
        return found if fitting is None else fitting

    def __repr__(self) -> str:
        """All fields in a line."""
        return (
            f"LogMatch(id={self.id}, template={self.template!r}, parameters={self.parameters}, "
            f"novelty={self.novelty:.3g}, opened={self.opened}, changed={self.changed})"
        )


def tell(leaf: Leaf, line: str, before: str | None = None) -> LogMatch:
    """The match of a line; its template changed if it was told of with another text."""
    match = LogMatch(leaf, line)
    template = leaf.template
    assert template is not None
    if template.told is match.template and template.into is None:
        return match  # as almost all
    template = template.final()
    told = before if template.told is None else template.told
    match.changed, template.told = told not in (None, match.template), match.template
    return match


@dataclass(frozen=True, slots=True)
class LogTemplate:
    """A template: its text, its lines, the first and the last of them, and some as examples."""

    id: int
    template: str
    count: int
    first_seen: int
    last_seen: int
    examples: tuple[str, ...]


def describe(template: Template) -> LogTemplate:
    """A template and what it stands for, in numbers."""
    leaves = template.all_leaves
    return LogTemplate(
        template.id,
        template.text,
        sum(leaf.count for leaf in leaves),
        leaves[0].first_seen,
        max(leaf.last_seen for leaf in leaves),
        tuple(leaf.example for leaf in leaves[:EXAMPLES]),
    )
