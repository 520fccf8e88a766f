"""How a template is written, learnt from the lines that fit it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from itertools import takewhile
from typing import NamedTuple, Self

from .tokenizer import WILD, Key, Line, plain

# A private character between what all marks in a place begin with, and what they all end with.
GAP = "\ue003"


def _as_wild(*_: str) -> str:
    return WILD


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
        """What two spellings share, so that what is written fits the lines of both.

        The order of the lines does not matter, nor how they were dealt out to several parsers.
        """
        if self == other:
            return self
        self, other = _level(self, other, _as_wild)
        if self.places != other.places:
            return min(self, other)
        spelt = tuple(a if a == b else WILD for a, b in zip(self.spelt, other.spelt, strict=True))
        marks = tuple(map(_shared, self.marks, other.marks))
        return Spelling(self.places, spelt, marks)

    def gathered(
        self,
        joined: Callable[[str, str, str], str] = _as_wild,
        where: Container[int] | None = None,
    ) -> Spelling:
        """One token for each place: several values in a row, or one and its unit, are ``joined``.

        With ``where``, in these places alone.

        >>> Spelling((0, 1, 1), ("a", "<*>", "<*>"), ("", " [", ", ", "]")).gathered().write()
        'a [<*>]'
        """
        places: list[int] = []
        spelt: list[str] = []
        marks: list[str] = []
        last = -1
        for place, text, mark in zip(self.places, self.spelt, self.marks, strict=False):
            more, last = place in (-1, last), last if place == -1 else place
            if places and more and (where is None or last in where):
                spelt[-1] = joined(spelt[-1], mark, text)
            else:
                places.append(place)
                spelt.append(text)
                marks.append(mark)
        return Spelling(tuple(places), tuple(spelt), (*marks, self.marks[-1]))

    def rows(self) -> dict[int, list[int]]:
        """The tokens of each place: values in a row, and units."""
        rows: defaultdict[int, list[int]] = defaultdict(list)
        last = -1
        for place in self.places:
            last = last if place == -1 else place
            rows[last].append(place)
        return rows

    def write(self) -> str:
        """The text of the template.

        >>> Spelling((0, 1), ("a", "<*>"), ("[", "=", "]")).write()
        '[a=<*>]'
        """
        marks = [self.mark(number) for number in range(len(self.marks))]
        return plain(marks[0] + "".join(map(str.__add__, self.spelt, marks[1:])))

    def mark(self, number: int) -> str:
        """What is written before this token, or after the last; wildcards take what differs."""
        head, gap, tail = self.marks[number].partition(GAP)
        after = self.spelt[number : number + 1] == (WILD,)
        before = number > 0 and self.spelt[number - 1] == WILD
        if not gap or (after and not (before and len(tail) > len(head))):
            return head
        return tail if before else tail or head


def values(spelling: Spelling, line: Line) -> tuple[str, ...]:
    """What stands in a line where the spelling has wildcards, one value for each."""
    own = Spelling(line.places, line.texts, line.marks)
    own, spelling = _level(own, spelling, lambda *parts: "".join(parts))
    if own.places != spelling.places:
        return tuple(plain(t) for t, s in zip(line.texts, line.spelt, strict=True) if s == WILD)
    found = []
    for number, text in enumerate(spelling.spelt):
        if text == WILD:
            before = own.marks[number].removeprefix(spelling.mark(number))
            after = ""
            if spelling.spelt[number + 1 : number + 2] != (WILD,):
                after = own.marks[number + 1].removesuffix(spelling.mark(number + 1))
            found.append(plain(before + own.spelt[number].replace(WILD, "") + after).strip())
    return tuple(found)


def gives_back(template: str, found: Sequence[str], line: str) -> bool:
    """Whether the text of a template, with these values for its wildcards, is a line.

    >>> gives_back("open <*> at <*>", ("door", "7"), "open door  at 7")
    True
    """
    first, *rest = template.split(WILD)
    whole = first + "".join(map(str.__add__, found, rest))
    return len(found) == len(rest) and whole.split() == line.split()


def aligned(template: str, line: str) -> tuple[str, ...] | None:
    """What stands in a line where the text of a template has wildcards; None if it does not fit.

    >>> aligned("open <*> at <*>", "open my door at 7"), aligned("open <*>", "shut 7")
    (('my door', '7'), None)
    """
    first, *rest = template.split(WILD)
    if not rest:
        return () if line == template else None
    last = rest.pop()
    place, end = len(first), len(line) - len(last)
    if place > end or not line.startswith(first) or not line.endswith(last):
        return None
    found = []
    for part in rest:
        start = line.find(part, place, end)
        if start < 0:
            return None
        found.append(line[place:start])
        place = start + len(part)
    return (*found, line[place:end])


def _level(
    one: Spelling, two: Spelling, joined: Callable[[str, str, str], str]
) -> tuple[Spelling, Spelling]:
    """Two spellings, gathered in the places where one has other tokens than the other."""
    if one.places == two.places:
        return one, two
    ours, theirs = one.rows(), two.rows()
    where = {place for place in (*ours, *theirs) if ours.get(place) != theirs.get(place)}
    return one.gathered(joined, where), two.gathered(_as_wild, where)


def _shared(ours: str, theirs: str) -> str:
    """Two marks as one: what both begin with, and what both end with."""
    if ours == theirs:
        return ours
    head, ours_gap, tail = ours.partition(GAP)
    other, theirs_gap, end = theirs.partition(GAP)
    tail, end = tail if ours_gap else head, end if theirs_gap else other
    return _beginning(head, other) + GAP + _beginning(tail[::-1], end[::-1])[::-1]


def _beginning(ours: str, theirs: str) -> str:
    return "".join(
        a for a, b in takewhile(lambda two: two[0] == two[1], zip(ours, theirs, strict=False))
    )
