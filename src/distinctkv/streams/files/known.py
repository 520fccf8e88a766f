"""The places that a state knows, and the one at which a text was left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .places import Place, Trail, digest
from .sources import Source

Numbered = dict[int, Place]


class Known:
    """Places in their order; looking for one takes no longer if there are many.

    The place of the same file comes before those of texts that begin alike, for it is surely its
    own; of several, the one that is furthest counts. A place before all text says nothing, and
    comes last: once that file is gone, another may have its number.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self._held: Numbered = dict(enumerate(places))
        self._files: dict[int, Numbered] = defaultdict(dict)
        self._starts: dict[tuple[int, str], Numbered] = defaultdict(dict)
        for number, place in self._held.items():
            self._files[place.inode][number] = place
            self._starts[place.n_head, place.head][number] = place

    def __iter__(self) -> Iterator[Place]:
        return iter(self._held.values())

    def find(self, source: Source) -> tuple[Source, Trail]:
        """A source that was just opened, or the same opened anew, at the place where it was left.

        The place is not known any more.
        """
        alike = self._starts.get((len(source.head), digest(source.head)), {})
        here = self._files.get(source.inode, {})
        own = {number: place for number, place in here.items() if place.offset}
        start = {number: place for number, place in here.items() if not place.offset}
        for likely in (own, alike, start) if source.regular else ():
            source, number, before = _walk(source, likely)
            if number is not None:
                return source, Trail(self._forget(number).offset, before)
        return source, Trail()

    def _forget(self, number: int) -> Place:
        place = self._held.pop(number)
        del self._files[place.inode][number], self._starts[place.n_head, place.head][number]
        return place


def _walk(source: Source, likely: Numbered) -> tuple[Source, int | None, bytes]:
    """Go once through the text for the last place that fits, the first of those that are the same.

    What is before it is given, too. If none fits, the source is at its start.
    """
    fitting = [one for one in likely.items() if one[1].may_fit(source)]
    before, found, end, upto = b"", None, 0, b""
    for number, place in sorted(fitting, key=lambda one: one[1].offset):
        before = source.skip(place.offset, before)
        if source.offset != place.offset:
            break
        if digest(before) == place.trail and (found is None or place.offset > end):
            found, end, upto = number, place.offset, before
    if source.offset != end:
        source = source.anew()
        source.skip(end)
    return source, found, upto
