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
        here = self._files.get(source.inode, {}).items()
        fitting = {number: place for number, place in here if place.may_fit(source)}
        own = {number: place for number, place in fitting.items() if place.offset}
        start = {number: place for number, place in fitting.items() if not place.offset}
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

    What is before it is given, too. If none fits, the source is at its start. The places are those
    of texts that begin like this one; an offset that many have is looked at once.
    """
    trails: defaultdict[int, dict[str, int]] = defaultdict(dict)  # by offset: the first with each
    for number, place in likely.items():
        trails[place.offset].setdefault(place.trail, number)
    before, found, end, upto = b"", None, 0, b""
    for offset in sorted(trails):
        before = source.skip(offset, before)
        if source.offset != offset:
            break
        if (first := trails[offset].get(digest(before))) is not None:
            found, end, upto = first, offset, before
    if source.offset != end:
        source = source.anew()
        source.skip(end)
    return source, found, upto
