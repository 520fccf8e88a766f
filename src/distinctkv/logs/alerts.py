"""Which new templates are worth an alert, and when: once each, when it is clear what they are.

The first line of a template does not show which of its words are values. A new template therefore
waits until more lines or some seconds have passed, and has an alert if it is a template of its own
by then, and was seen often enough.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, NamedTuple

from .headers import LEVELS, seconds_of
from .parser import LogParser, LogTemplate

SETTLE_LINES, SETTLE_SECONDS = 1000, 5.0  # that a new template waits, whichever is over first
PENDING = 10_000  # templates that may wait; after that the oldest counts as known


class Alert(NamedTuple):
    """A line that opened a template."""

    time: str  # when it was read
    logged: str | None  # the time in the line
    id: int
    template: str
    novelty: float  # distance to the nearest template
    number: int  # of the line, from 1
    line: str
    level: str = ""
    seen: int = 1  # lines of the template so far


@dataclass(frozen=True, slots=True)
class AlertRule:
    """At least ``times`` lines of a new template ``within`` so many seconds, after ``warmup`` ones.

    ``level`` is the least severe one, for lines that name a level. Seconds are those of the times
    in the lines, or of the clock if they have none.
    """

    times: int = 1
    within: float | None = None
    warmup: float = 0.0
    level: str = ""

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be at least 1, got {self.times}")
        if self.level and self.level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {self.level!r}")

    def admits(self, level: str) -> bool:
        """Whether a line of this level may have an alert."""
        return not (level and self.level) or LEVELS.index(level) >= LEVELS.index(self.level)

    def met(self, moments: deque[float]) -> bool:
        """Whether the last lines came often enough."""
        if len(moments) < self.times:
            return False
        return self.within is None or moments[-1] - moments[0] <= self.within


@dataclass(slots=True)
class _Pending:
    """A new template that has no alert yet; ``seen`` lines were read before it."""

    alert: Alert
    seen: int
    moments: deque[float]
    opened: float = field(default_factory=monotonic)

    def settled(self, seen: int) -> bool:
        return seen - self.seen >= SETTLE_LINES or monotonic() - self.opened >= SETTLE_SECONDS


def _updated(one: _Pending, number: int, row: LogTemplate | None) -> Alert:
    """The alert with the template as it is now; as it was if that was evicted."""
    if row is None:
        return one.alert._replace(seen=len(one.moments))
    return one.alert._replace(id=number, template=row.template, seen=row.count)


class Alerts:
    """New templates that wait, and those that had their alert.

    >>> alerts, parser = Alerts(AlertRule(times=2)), LogParser()
    >>> for number, line in enumerate(["door 1 opened", "key lost", "door 2 opened"], 1):
    ...     match = parser.add(line)
    ...     if match.opened:
    ...         alerts.open(Alert("", None, match.id, match.template, 1, number, line), number)
    ...     alerts.count(match.id, None)
    >>> [alert.template for alert in alerts.due(parser, final=True)]
    ['door <*> opened']
    """

    def __init__(self, rule: AlertRule | None = None, state: dict[str, Any] | None = None) -> None:
        self.rule = rule or AlertRule()
        self._pending: dict[int, _Pending] = {}
        self._reported: set[int] = set()
        self._begun: float | None = None  # when the first line came
        self._next_look = 0.0
        if state:
            self._restore(state)

    def open(self, alert: Alert, seen: int) -> None:
        """A line opened a template; ``seen`` lines were read before."""
        moment = self._moment(alert.logged)
        known = 0 <= moment - self._start(moment) < self.rule.warmup
        if not known and self.rule.admits(alert.level):
            self._pending[alert.id] = _Pending(alert, seen, deque(maxlen=self.rule.times))
            if len(self._pending) > PENDING:
                del self._pending[next(iter(self._pending))]

    def count(self, number: int, logged: str | None) -> None:
        """A line has the template of this id."""
        if self._begun is None:
            self._start(self._moment(logged))
        if (found := self._pending.get(number)) is not None:
            found.moments.append(self._moment(logged))

    def due(self, parser: LogParser, *, final: bool = False) -> list[Alert]:
        """The alerts of templates that have settled; ``final`` for all that were seen often enough.

        It lists all templates, for a twentieth of the time at most.
        """
        ready = [
            number
            for number, one in self._pending.items()
            if self.rule.met(one.moments) and (final or one.settled(parser.seen))
        ]
        begin = monotonic()
        if not ready or (begin < self._next_look and not final):
            return []
        rows = {row.id: row for row in parser.templates()}
        found = []
        for number in ready:
            one, root = self._pending.pop(number), parser.resolve(number)
            if root is not None and root in self._pending and root != number:
                self._pending[root].moments.extend(one.moments)
            elif root is None or (root >= number and root not in self._reported):
                now = number if root is None else root
                self._reported.add(now)
                found.append(_updated(one, now, rows.get(now)))
        self._next_look = monotonic() + 20 * (monotonic() - begin)
        return found

    def state(self) -> dict[str, Any]:
        """What a state keeps."""
        return {
            "pending": [[one.alert, one.seen, [*one.moments]] for one in self._pending.values()],
            "reported": sorted(self._reported),
            "begun": self._begun,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        for row, seen, moments in state["pending"]:
            one = Alert(*row)
            kept = deque(map(float, moments), maxlen=self.rule.times)
            self._pending[one.id] = _Pending(one, int(seen), kept)
        self._reported = {int(number) for number in state["reported"]}
        self._begun = None if state["begun"] is None else float(state["begun"])

    def _moment(self, logged: str | None) -> float:
        seconds = seconds_of(logged) if logged else None
        return time() if seconds is None else seconds

    def _start(self, moment: float) -> float:
        self._begun = moment if self._begun is None else self._begun
        return self._begun
