"""What a parser says about a line, and about a template."""

from __future__ import annotations

from dataclasses import dataclass

from .leaves import Leaf, Template
from .lines import Key, Reader, plain
from .spelling import Spelling
from .words import WILD

EXAMPLES = 3


class LogMatch:
    """The template of a line under its id, and whether the line opened it or changed its text.

    ``novelty`` is the distance of the line from what was known before, 0 for a repeat.
    """

    __slots__ = ("_key", "_line", "_spelling", "changed", "id", "novelty", "opened", "template")

    def __init__(self, leaf: Leaf, line: str, novelty: float = 0.0) -> None:
        own = leaf.template
        assert own is not None
        template = own if own.into is None else own.final()
        self.id, self.template = template.id, template.text
        self.novelty, self.opened, self.changed = novelty, False, False
        self._line, self._key, self._spelling = line, own.key, own.spelling

    @property
    def parameters(self) -> tuple[str, ...]:
        """The values in the line, in the order of the wildcards of the template.

        A line with a longer list of values than the template shows has more of them.
        """
        return values(self._line, self._key, self._spelling)

    def __repr__(self) -> str:
        """All fields in a line."""
        return (
            f"LogMatch(id={self.id}, template={self.template!r}, parameters={self.parameters}, "
            f"novelty={self.novelty:.3g}, opened={self.opened}, changed={self.changed})"
        )


def values(line: str, key: Key, spelling: Spelling) -> tuple[str, ...]:
    """Values of a line at the wildcards of the template that it belongs to."""
    read = Reader().read(line)
    if read.places == spelling.places:
        wild = [text == WILD for text in spelling.spelt]
    else:
        known = key if len(key) == len(read.key) else read.key
        wild = [place >= 0 and known[place] == WILD for place in read.places]
    return tuple(plain(text) for text, here in zip(read.texts, wild, strict=True) if here)


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
