"""When the first and the last line of each template were logged, by the lines' own times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, cast

COARSE = 4096  # batches whose time is kept
SPARE = 1000  # templates
Rows = dict[int, tuple[int, str]]  # line and time by id
EVICTED = -1  # the id of a line whose template is gone


class Sightings:
    """Times of the lines that are the first or the last of their template, and a few others.

    Only those are kept: a log has more lines than fit in memory. A template that came about by
    parting an older one may find only the time of the batch that its line was in. Only a line's own
    time counts: a line of a stack trace has none.

    >>> seen = Sightings()
    >>> seen.note(0, [0, 0, 1, 0], ["9:00", "9:01", "9:02", "9:03"])
    >>> seen.time(0), seen.time(3), seen.time(2)
    ('9:00', '9:03', '9:02')
    """

    def __init__(self) -> None:
        self._first: Rows = {}
        self._last: Rows = {}
        self._coarse: list[tuple[int, str]] = []
        self._gaps = False  # whether a line had no time of its own
        self._at: dict[int, str] | None = None

    def note(self, start: int, ids: Sequence[int], times: Sequence[str | None]) -> None:
        """Take note of a batch that begins with this line; a line without a time tells nothing.

        Lines whose template was evicted since have the id -1, and only tell the time.
        """
        places: Sequence[int] = range(len(ids))
        if not all(times):
            self._gaps = True
            places = [place for place in places if times[place]]
            ids = [ids[place] for place in places]
        if not places:
            return
        known = cast(Sequence[str], times)
        last = dict(zip(ids, places, strict=True))
        last.pop(EVICTED, None)
        self._last.update((one, (start + place, known[place])) for one, place in last.items())
        if not last.keys() <= self._first.keys():
            first = dict(zip(reversed(ids), reversed(places), strict=True))
            rows = {one: (start + first[one], known[first[one]]) for one in last}
            self._first = rows | self._first
        self._coarse.append((start + places[0], known[places[0]]))
        if len(self._coarse) > COARSE:
            del self._coarse[1::2]
        self._at = None

    def time(self, line: int, own: str = "") -> str:
        """When a line was logged: exactly for first and last lines.

        Of another line it is not known whether it had a time. If all lines had one, it is about
        when its batch began; else ``own`` is the answer, a time of the template.
        """
        if self._at is None:
            self._at = dict([*self._first.values(), *self._last.values()])
        if line in self._at:
            return self._at[line]
        if self._gaps:
            return own
        place = bisect_right(self._coarse, line, key=lambda row: row[0])
        return self._coarse[place - 1][1] if place else ""

    def spans(self, resolve: Callable[[int], int | None]) -> dict[int, tuple[str, str]]:
        """First and last times in lines of each template that has any, if not all lines have."""
        if not self._gaps:
            return {}
        first, last = self._resolved(resolve)
        return {number: (row[1], last[number][1]) for number, row in first.items()}

    def prune(self, n_templates: int, resolve: Callable[[int], int | None]) -> None:
        """Forget templates that are gone, if there are many more here than templates held."""
        if len(self._last) > SPARE + 4 * n_templates:
            (self._first, self._last), self._at = self._resolved(resolve), None

    def _resolved(self, resolve: Callable[[int], int | None]) -> tuple[Rows, Rows]:
        """First and last lines by the templates that hold them now."""
        first: Rows = {}
        last: Rows = {}
        for number, row in self._last.items():
            if (now := resolve(number)) is not None:
                first[now] = min(self._first[number], first.get(now, row))
                last[now] = max(row, last.get(now, row))
        return first, last

    def state(self) -> dict[str, Any]:
        """What a state file keeps."""
        return {
            "first": [[number, *row] for number, row in self._first.items()],
            "last": [[number, *row] for number, row in self._last.items()],
            "coarse": self._coarse,
            "gaps": self._gaps,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Sightings:
        """Go on from what was kept."""
        seen = cls()
        seen._first = {_count(number): _row(*row) for number, *row in state["first"]}
        seen._last = {_count(number): _row(*row) for number, *row in state["last"]}
        seen._coarse = sorted(_row(*row) for row in state["coarse"])
        seen._gaps = bool(state.get("gaps"))  # older states do not say
        if seen._first.keys() != seen._last.keys():
            raise ValueError("a template has a first line or a last one, and not both")
        return seen


def _row(line: int, time: str) -> tuple[int, str]:
    if not isinstance(time, str):
        raise ValueError(f"a time is text, got {time!r}")
    return _count(line), time


def _count(number: int) -> int:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"lines and templates are numbered from 0, got {number!r}")
    return number
