"""How a template is written, learnt from the lines that fit it."""

from __future__ import annotations

from typing import NamedTuple, Self

from .lines import Key, Line, plain
from .words import WILD


class Spelling(NamedTuple):
    """Tokens, the marks around them, and the place of each token in the key."""

    places: tuple[int, ...]
    spelt: tuple[str, ...]
    marks: tuple[str, ...]

    @classmethod
    def of(cls, line: Line) -> Self:
        """The spelling of one line."""
        return cls(line.places, line.spelt, line.marks)

    def under(self, own: Key, template: Key) -> Spelling:
        """This spelling, with a wildcard where the template has one and the own key has none."""
        if own == template:
            return self
        spelt = tuple(
            WILD if place >= 0 and template[place] == WILD != own[place] else text
            for text, place in zip(self.spelt, self.places, strict=True)
        )
        return self._replace(spelt=spelt)

    def meet(self, other: Spelling) -> Spelling:
        """What two spellings share: of the shorter, the tokens on which both agree.

        The order of the lines does not matter, nor how they were dealt out to several parsers.
        """
        if self == other:
            return self
        ours, theirs = (len(self.places), self.places), (len(other.places), other.places)
        if ours != theirs:
            return min((ours, self), (theirs, other))[1]
        spelt = tuple(a if a == b else WILD for a, b in zip(self.spelt, other.spelt, strict=True))
        return Spelling(self.places, spelt, min(self.marks, other.marks))

    def write(self) -> str:
        """The text of the template.

        >>> Spelling((0, 1), ("a", "<*>"), ("[", "=", "]")).write()
        '[a=<*>]'
        """
        return plain(self.marks[0] + "".join(map(str.__add__, self.spelt, self.marks[1:])))
