"""A parser at work on files, with a state that survives a kill at any moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ..compression import SourceError
from ..snapshot import SnapshotError
from .alerts import Alert, AlertRule, Alerts
from .fields import detect_fields, restore_header
from .headers import SAMPLE, Header, detect_header, in_trace, time_share
from .parser import LogParser
from .reader import CHUNK, Chunk, LineCounts, LineSource, Position

NOTE = "distinctkv parse"  # the key of a job in the parser's note; other keys are the user's
ALERTS = "distinctkv watch"  # the key of the alerts that wait
MIN_LINES = 10  # after a banner, that a header is detected from
LINES = 50_000  # between two saves; more if there are many slots to save
LINES_PER_SLOT = 25
PAUSE = 5.0  # seconds between two saves of what comes slowly
ENOUGH, PATIENCE = 50, 3.0  # lines, or seconds, to detect the header of what comes slowly
SAMPLES = 4096  # lines whose time is kept, spread over the log
SPARE = 1000  # templates whose times are kept though they are gone
ALERT_RULE = AlertRule()
EVICTED = -1  # the id of a line whose template is gone


class Batch(NamedTuple):
    """Lines as they are, and the messages in them; ``start`` is the number of lines before them."""

    start: int
    lines: list[str]
    messages: list[str]
    times: list[str | None]  # of each message; empty if the header has no time
    n_known: int  # of the messages, the first so many were there before the baseline
    levels: list[str]  # of each message; empty if there is no header
    places: Sequence[int]  # in ``lines``, of each message

    def number(self, place: int) -> int:
        """The line, from 1, in which a message begins."""
        return self.start + self.places[place] + 1

    def line(self, place: int) -> str:
        """The line in which a message begins."""
        return self.lines[self.places[place]]


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """A row of the template table; lines are numbered from 1, times are empty if not known."""

    id: int
    template: str
    count: int
    share: float
    first_line: int
    last_line: int
    first_time: str
    last_time: str
    examples: tuple[str, ...]


class SeenTimes:
    """When the first and the last line of each template were logged.

    A line without a time, as in a stack trace, has the time of the line before it. Times are kept
    of first and last lines, and of a bounded sample of the others: a template that was split off
    another one may have only the time of the sampled line before.

    >>> seen = SeenTimes()
    >>> seen.note(0, [0, 0, 1, 0], ["9:00", "9:01", None, "9:03"])
    >>> [seen.lookup()(line) for line in (0, 2, 3)]
    ['9:00', '9:01', '9:03']
    """

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, str]] = {}  # line and time by id
        self._last: dict[int, tuple[int, str]] = {}
        self._samples: list[tuple[int, str]] = []
        self._step = 1  # lines between two samples
        self._now = ""  # the time of the last line

    def note(self, start: int, ids: Sequence[int], times: Sequence[str | None]) -> None:
        """Note the times of lines, of which the first has this number."""
        known = []
        for time in times:
            self._now = time or self._now
            known.append(self._now)
        first = dict(zip(reversed(ids), range(len(ids) - 1, -1, -1), strict=True))
        last = dict(zip(ids, range(len(ids)), strict=True))
        for number, place in last.items():
            if number != EVICTED:
                self._last[number] = (start + place, known[place])
                self._first.setdefault(number, (start + first[number], known[first[number]]))
        begin = -start % self._step
        self._samples += [(start + n, known[n]) for n in range(begin, len(ids), self._step)]
        while len(self._samples) > SAMPLES:
            self._step *= 2
            self._samples = [one for one in self._samples if one[0] % self._step == 0]

    def lookup(self) -> Callable[[int], str]:
        """A function from a line to its time; exact for first and last lines of templates."""
        exact = dict([*self._first.values(), *self._last.values()])

        def time(line: int) -> str:
            if line in exact:
                return exact[line]
            place = bisect_right(self._samples, line, key=lambda row: row[0])
            return self._samples[place - 1][1] if place else ""

        return time

    def prune(self, n_templates: int, resolve: Callable[[int], int | None]) -> None:
        """Forget templates that are gone, if they are many more than those held."""
        if len(self._last) <= SPARE + 4 * n_templates:
            return
        first: dict[int, tuple[int, str]] = {}
        last: dict[int, tuple[int, str]] = {}
        for number, row in self._last.items():
            if (now := resolve(number)) is not None:
                first[now] = min(self._first[number], first.get(now, row))
                last[now] = max(row, last.get(now, row))
        self._first, self._last = first, last

    def state(self) -> dict[str, Any]:
        """What a state keeps."""
        rows = [[n, *self._first[n], *self._last[n]] for n in self._last]
        return {"rows": rows, "samples": self._samples, "step": self._step, "now": self._now}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> SeenTimes:
        """Read a state."""
        seen = cls()
        for number, first, first_time, last, last_time in state["rows"]:
            seen._first[int(number)] = int(first), str(first_time)
            seen._last[int(number)] = int(last), str(last_time)
        seen._samples = sorted((int(line), str(time)) for line, time in state["samples"])
        seen._step, seen._now = max(1, int(state["step"])), str(state["now"])
        return seen


class Job:
    """The batches of some files, parsed in order, with a state to resume from.

    The state is the parser's snapshot; the parser's note says how far each file was read. It is
    written atomically, when the next batch is asked for: after a kill no line is lost and none
    counts twice, and the alerts of every saved line were taken. A last line without a newline may
    be half written, so it is parsed after the last save.
    """

    def __init__(
        self,
        paths: Sequence[str],
        parser: LogParser,
        *,
        state: Path | None = None,
        header: Header | None = None,
        detect_header: bool = False,
        field: str | None = None,
        follow: bool = False,
        chunk_size: int = CHUNK,
        stop: Callable[[], bool] = lambda: False,
        alert_rule: AlertRule = ALERT_RULE,
    ) -> None:
        self.parser = parser
        self.header: Header | None = None
        self.timed: float | None = None  # share of lines that begin with a time, once detected
        self.without_header = 0  # lines
        self.continued = 0  # lines that belong to the line before, as of stack traces
        self._field = field  # that is the message
        self._alert_rule = alert_rule
        self._state, self._stop = state, stop
        self._finished = False  # the state may not be written any more
        try:
            positions, baseline = self._restore(parser.note.get(NOTE, {}))
            waiting = parser.note.get(ALERTS)
            self._watched = Alerts(alert_rule, waiting) if waiting else None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the state {state} does not say how far files were read ({error!r}); "
                "delete it to start anew"
            ) from error
        self._set_header(header, detect_header or field is not None)
        self.source = LineSource(
            paths,
            follow=follow,
            positions=positions,
            counts=self.counts,
            chunk_size=chunk_size,
            hold_partial=state is not None,
            baseline=baseline,
        )
        self._saved, self._saved_at = parser.seen, monotonic()

    def set_baseline(self) -> None:
        """Take the lines that are in the file now as known, and keep that in the state."""
        if self.source.baseline is not None or self.parser.seen:
            return
        self.source.set_baseline()
        self.save()

    def __iter__(self) -> Iterator[Batch]:
        """All batches until the end, or until it is to stop; empty ones while waiting."""
        pending, n_known = list[str](), 0
        since = monotonic()
        for chunk in self.source:
            pending += chunk.lines
            n_known += chunk.n_known
            if not self._detecting or self._enough(pending, monotonic() - since):
                yield self._batch(Chunk(pending, n_known))
                self._save_if_due()
                pending, n_known = [], 0
            if self._stop():
                break
        if pending or (self._carried and self._state is None):
            yield self._batch(Chunk(pending, n_known), last=self._state is None)
        if self.source.has_partial:
            self.save()
            self._finished = True
            yield self._batch(self.source.partial_lines())

    def parse(self, batch: Batch) -> list[int]:
        """Give a batch to the parser; the id of each message."""
        begin = self.parser.seen
        ids: list[int] = self.parser.add_many(batch.messages).tolist()
        self._note(batch, begin, ids)
        return ids

    def alerts(self, batch: Batch) -> Iterator[Alert]:
        """Give a batch to the parser line by line; the lines after the baseline that open one."""
        return (alert for _, _, alert in self._matches(batch) if alert is not None)

    def watch(self, batch: Batch) -> list[Alert]:
        """Give a batch to the parser line by line; the alerts that are due after it."""
        alerts = self.watched
        for place, number, alert in self._matches(batch):
            if alert is not None:
                alerts.open(alert, self.parser.seen)
            alerts.count(number, batch.times[place] if batch.times else None)
        return alerts.due(self.parser)

    def last_alerts(self) -> list[Alert]:
        """The alerts that were waiting, at the end of the input."""
        return self.watched.due(self.parser, final=True)

    @property
    def watched(self) -> Alerts:
        """The new templates that wait for their alert."""
        if self._watched is None:
            self._watched = Alerts(self._alert_rule)
        return self._watched

    def _matches(self, batch: Batch) -> Iterator[tuple[int, int, Alert | None]]:
        """The place and id of each message, and an alert if it opened a template."""
        begin, ids = self.parser.seen, []
        for place, message in enumerate(batch.messages):
            match, alert = self.parser.add(message), None
            ids.append(match.id)
            if match.opened and place >= batch.n_known:
                alert = Alert(
                    datetime.now(UTC).isoformat(timespec="milliseconds"),
                    batch.times[place] if batch.times else None,
                    match.id,
                    match.template,
                    round(match.novelty, 4),
                    batch.number(place),
                    batch.line(place),
                    batch.levels[place] if batch.levels else "",
                )
            yield place, match.id, alert
        self._note(batch, begin, ids)

    def templates(self) -> list[TemplateRow]:
        """The template table, the most frequent first."""
        time, line = self.times.lookup(), self._line_numbers()
        lines = max(1, self.parser.seen)
        rows = [
            TemplateRow(
                one.id,
                one.template,
                one.count,
                round(one.count / lines, 6),
                line(one.first_seen),
                line(one.last_seen),
                time(one.first_seen),
                time(one.last_seen),
                one.examples,
            )
            for one in self.parser.templates()
            if one.count
        ]
        return sorted(rows, key=lambda row: (-row.count, row.id))

    def save(self) -> None:
        """Write the state, if there is one; not after a line that may be half written."""
        if self._finished:
            return
        parser, header = self.parser, self.header
        if self._watched is not None:
            parser.note[ALERTS] = self._watched.state()
        for seen in (self.times, self._numbers):
            seen.prune(len(parser), parser.resolve)
        parser.note[NOTE] = {
            "positions": self.source.positions,
            "counts": asdict(self.counts),
            "lines": self._n_lines,
            "continued": self.continued,
            "traced": self._traced,
            "carried": self._carried,
            "detects": self._detects,
            "without_header": self.without_header,
            "header": header and header.state(),
            "times": self.times.state(),
            "numbers": self._numbers.state() if self._numbered else None,
            "baseline": self.source.baseline,
        }
        if self._state is not None:
            try:
                parser.save(self._state)
            except OSError as error:
                raise SnapshotError(f"cannot write {self._state}: {error.strerror}") from error
        self._saved, self._saved_at = parser.seen, monotonic()

    def _restore(self, note: dict[str, Any]) -> tuple[list[Position], Position | None]:
        self.counts, self.times = LineCounts(), SeenTimes()
        # Line numbers are noted from the first batch on in which not every line is a message.
        self._numbers, self._numbered = SeenTimes(), False
        self._n_lines = 0  # in all batches
        self._begun = bool(note) and self.parser.seen > 0  # whether a line can belong to another
        self._traced = False  # whether the last line is in a trace of Python
        self._carried: list[str] = []  # the last line, if its message is the next one
        self._detects = False  # whether a header was looked for from the first line on
        if not note:
            return [], None
        self._traced, self._carried = bool(note["traced"]), [*map(str, note["carried"])]
        self._detects = bool(note["detects"])
        self._n_lines, self.continued = int(note["lines"]), int(note["continued"])
        if note["numbers"] is not None:
            self._numbers, self._numbered = SeenTimes.restore(note["numbers"]), True
        self.counts = LineCounts(**{name: int(n) for name, n in note["counts"].items()})
        self.without_header = int(note["without_header"])
        self.times = SeenTimes.restore(note["times"])
        self.header = None if note["header"] is None else restore_header(note["header"])
        baseline = note["baseline"]
        positions = [Position.restore(row) for row in note["positions"]]
        return positions, None if baseline is None else Position.restore(baseline)

    def _set_header(self, header: Header | None, detect: bool) -> None:
        """Use the header that is given, unless lines were parsed with another one before."""
        begun = self.counts.lines > 0
        self._detects = detect and (self._detects or not begun)
        # A few lines without a header may be a banner: the lines after them decide.
        self._detecting = self._detects and self.counts.lines < ENOUGH and self.header is None
        if detect or not begun:
            self.header = self.header or header
            return
        if (header and header.pattern) != (self.header and self.header.pattern):
            named = self.header and (", ".join(self.header.fields) or repr(self.header.pattern))
            raise SnapshotError(
                f"{self._state} was begun with {f'the header {named}' if named else 'no header'}; "
                "leave out --header to resume"
            )

    def _enough(self, lines: list[str], seconds: float) -> bool:
        """Whether to detect the header now."""
        slow = self.source.waiting and (len(lines) >= ENOUGH or seconds > PATIENCE)
        return bool(lines) and (len(lines) >= SAMPLE or slow)

    def _batch(self, chunk: Chunk, last: bool = False) -> Batch:
        lines, n_known = [*self._carried, *chunk.lines], chunk.n_known
        n_known += len(self._carried) if n_known else 0
        self._carried = []
        if self._detecting and (len(lines) >= MIN_LINES or (lines and not self._n_lines)):
            first, self._detecting = lines[:SAMPLE], False
            self.header = find_header(first, self._field)
            self.timed = time_share(first)
            if self._field is not None and f"message={self._field}" not in self._fields:
                raise SourceError(
                    f"the first lines are no JSON objects or logfmt with a field {self._field}; "
                    "name another field, or none"
                )
        start, header = self._n_lines, self.header
        if header is not None and lines and not last and header.awaits_text(lines[-1]):
            self._carried = [lines.pop()]
        self._n_lines += len(lines)
        if header is None or not lines:
            return Batch(start, lines, lines, [], n_known, [], range(len(lines)))
        messages, times, levels, places = header.read(lines, self._begun, self._traced)
        self._traced = in_trace(lines, self._traced)
        self._begun |= bool(messages)
        self.without_header += times.count(None)
        self.continued += len(lines) - len(set(places))
        times = times if header.has_time else []
        known = bisect_left(places, n_known)
        return Batch(start, lines, messages, times, known, levels, places)

    @property
    def _fields(self) -> Sequence[str]:
        return () if self.header is None else self.header.fields

    def _note(self, batch: Batch, begin: int, ids: Sequence[int]) -> None:
        """Note times and line numbers of messages, of which the first has this index."""
        if batch.times:
            self.times.note(begin, ids, batch.times)
        self._numbered |= batch.start != begin or len(batch.lines) != len(batch.messages)
        if self._numbered:
            self._numbers.note(begin, ids, [str(batch.number(n)) for n in range(len(ids))])

    def _line_numbers(self) -> Callable[[int], int]:
        """A function from the index of a message to the number of its line, from 1."""
        number = self._numbers.lookup()
        return lambda index: int(number(index) or index + 1)

    def _save_if_due(self) -> None:
        """Save after many lines, or after some time where lines come slowly."""
        new = self.parser.seen - self._saved
        due = new >= max(LINES, LINES_PER_SLOT * self.parser.n_variants)
        slow = self.source.live and monotonic() - self._saved_at > PAUSE
        if due or (new and slow):
            self.save()


def find_header(lines: Sequence[str], field: str | None = None) -> Header | None:
    """The header that most of these lines have, or how they are read as records; None if neither.

    ``field`` is the name of the field that is the message.
    """
    records = detect_fields(lines, field) if _may_be_records(lines) else None
    return records or detect_header(lines)


def _may_be_records(lines: Sequence[str]) -> bool:
    """Whether half of the lines may be JSON objects or logfmt: then they are read as records."""
    return 2 * sum(["{" in line or "=" in line for line in lines]) >= len(lines)
