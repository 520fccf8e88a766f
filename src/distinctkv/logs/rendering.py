"""The text of templates and the values of their wildcards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from itertools import takewhile
from typing import NamedTuple, Self

from .tokenizer import WILD, Key, Line, strip_private

# A private character between the common prefix and the common suffix of delimiters that differ.
GAP = "\ue003"


def _as_wildcard(*_: str) -> str:
    return WILD


class Rendering(NamedTuple):
    """What a template shows: literals, the delimiters around them, and their positions in the key.

    ``delimiters[0] literals[0] delimiters[1] ... delimiters[-1]``. Several literals may have one
    position (a list of values); a unit after a value has position -1.
    """

    positions: tuple[int, ...]
    literals: tuple[str, ...]
    delimiters: tuple[str, ...]

    @classmethod
    def of(cls, line: Line) -> Self:
        """The rendering of one line."""
        return cls(line.positions, line.literals, line.delimiters)

    def under(self, own: Key, template: Key) -> Rendering:
        """This rendering with wildcards where the template key has one and the own key has none."""
        if own == template:
            return self
        literals = tuple(
            WILD if place >= 0 and template[place] == WILD != own[place] else text
            for text, place in zip(self.literals, self.positions, strict=True)
        )
        return self._replace(literals=literals)

    def merge(self, other: Rendering) -> Rendering:
        """What two renderings share, so that the text fits the lines of both.

        Associative and commutative: neither the order of the lines nor their division among parsers
        matters.
        """
        if self == other:
            return self
        self, other = _align(self, other, _as_wildcard)
        if self.positions != other.positions:
            return min(self, other)
        literals = tuple(
            a if a == b else WILD for a, b in zip(self.literals, other.literals, strict=True)
        )
        delimiters = tuple(map(_common_delimiter, self.delimiters, other.delimiters))
        return Rendering(self.positions, literals, delimiters)

    def with_one_each(
        self,
        join: Callable[[str, str, str], str] = _as_wildcard,
        where: Container[int] | None = None,
    ) -> Rendering:
        """One literal per position: adjacent values, or a value and its unit, are joined.

        With ``where``, at these positions only.

        >>> Rendering((0, 1, 1), ("a", "<*>", "<*>"), ("", " [", ", ", "]")).with_one_each().text()
        'a [<*>]'
        """
        positions: list[int] = []
        literals: list[str] = []
        delimiters: list[str] = []
        last = -1
        for place, text, delimiter in zip(
            self.positions, self.literals, self.delimiters, strict=False
        ):
            more, last = place in (-1, last), last if place == -1 else place
            if positions and more and (where is None or last in where):
                literals[-1] = join(literals[-1], delimiter, text)
            else:
                positions.append(place)
                literals.append(text)
                delimiters.append(delimiter)
        return Rendering(tuple(positions), tuple(literals), (*delimiters, self.delimiters[-1]))

    def runs(self) -> dict[int, list[int]]:
        """For each position those of its literals: equal for a list of values, -1 for a unit."""
        runs: defaultdict[int, list[int]] = defaultdict(list)
        last = -1
        for place in self.positions:
            last = last if place == -1 else place
            runs[last].append(place)
        return runs

    def text(self) -> str:
        """The text of the template.

        >>> Rendering((0, 1), ("a", "<*>"), ("[", "=", "]")).text()
        '[a=<*>]'
        """
        delimiters = [self.delimiter(number) for number in range(len(self.delimiters))]
        parts = map(str.__add__, self.literals, delimiters[1:])
        return strip_private(delimiters[0] + "".join(parts))

    def delimiter(self, number: int) -> str:
        """The delimiter before this literal, or after the last.

        Where delimiters differ, a wildcard beside them takes the part that is not common.
        """
        head, gap, tail = self.delimiters[number].partition(GAP)
        after = self.literals[number : number + 1] == (WILD,)
        before = number > 0 and self.literals[number - 1] == WILD
        if not gap or (after and not (before and len(tail) > len(head))):
            return head
        return tail if before else tail or head


def parameters(rendering: Rendering, line: Line) -> tuple[str, ...]:
    """The values in a line, one for each wildcard of the rendering."""
    own = Rendering(line.positions, line.texts, line.delimiters)
    own, rendering = _align(own, rendering, lambda *parts: "".join(parts))
    if own.positions != rendering.positions:
        pairs = zip(line.texts, line.literals, strict=True)
        return tuple(strip_private(text) for text, literal in pairs if literal == WILD)
    found = []
    for number, literal in enumerate(rendering.literals):
        if literal == WILD:
            before = own.delimiters[number].removeprefix(rendering.delimiter(number))
            after = ""
            if rendering.literals[number + 1 : number + 2] != (WILD,):
                after = own.delimiters[number + 1].removesuffix(rendering.delimiter(number + 1))
            value = before + own.literals[number].replace(WILD, "") + after
            found.append(strip_private(value).strip())
    return tuple(found)


def reproduces(template: str, found: Sequence[str], line: str) -> bool:
    """Whether the text of a template with these values is the line, up to blanks.

    >>> reproduces("open <*> at <*>", ("door", "7"), "open door  at 7")
    True
    """
    first, *rest = template.split(WILD)
    filled = first + "".join(map(str.__add__, found, rest))
    return len(found) == len(rest) and filled.split() == line.split()


def align_text(template: str, line: str) -> tuple[str, ...] | None:
    """The values of a line by the text of a template alone; None if it does not fit.

    >>> align_text("open <*> at <*>", "open my door at 7"), align_text("open <*>", "shut 7")
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


def _align(
    one: Rendering, two: Rendering, join: Callable[[str, str, str], str]
) -> tuple[Rendering, Rendering]:
    """Two renderings with one literal at each position where their runs differ."""
    if one.positions == two.positions:
        return one, two
    ours, theirs = one.runs(), two.runs()
    where = {place for place in (*ours, *theirs) if ours.get(place) != theirs.get(place)}
    return one.with_one_each(join, where), two.with_one_each(_as_wildcard, where)


def _common_delimiter(ours: str, theirs: str) -> str:
    """The common prefix and the common suffix of two delimiters, with `GAP` between them."""
    if ours == theirs:
        return ours
    head, ours_gap, tail = ours.partition(GAP)
    other, theirs_gap, end = theirs.partition(GAP)
    tail, end = tail if ours_gap else head, end if theirs_gap else other
    return _common_prefix(head, other) + GAP + _common_prefix(tail[::-1], end[::-1])[::-1]


def _common_prefix(ours: str, theirs: str) -> str:
    return "".join(
        a for a, b in takewhile(lambda two: two[0] == two[1], zip(ours, theirs, strict=False))
    )
