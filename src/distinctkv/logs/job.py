"""A parser at work on files, with a state that survives a kill at any moment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ..snapshot import SnapshotError
from .headers import SAMPLE, Header, detect_header, time_share
from .parser import LogParser
from .reader import CHUNK, Chunk, LineCounts, LineSource, Position

NOTE = "distinctkv parse"  # the key of a job in the parser's note; other keys are the user's
LINES = 50_000  # between two saves; more if there are many slots to save
LINES_PER_SLOT = 25
PAUSE = 5.0  # seconds between two saves of what comes slowly
ENOUGH, PATIENCE = 50, 3.0  # lines, or seconds, to detect the header of what comes slowly
SAMPLES = 4096  # lines whose time is kept, spread over the log
SPARE = 1000  # templates whose times are kept though they are gone
EVICTED = -1  # the id of a line whose template is gone


class Batch(NamedTuple):
    """Lines as they are and without their header; ``start`` is the number of lines before them."""

    start: int
    lines: list[str]
    messages: list[str]
    times: list[str | None]  # empty if the header has no time
    n_known: int  # of them, the first so many were there before the baseline


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


class Alert(NamedTuple):
    """A line that opened a template."""

    time: str  # when it was read
    logged: str | None  # the time in the line
    id: int
    template: str
    novelty: float  # distance to the nearest template
    number: int  # of the line, from 1
    line: str


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
        follow: bool = False,
        chunk_size: int = CHUNK,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.parser = parser
        self.header: Header | None = None
        self.timed: float | None = None  # share of lines that begin with a time, once detected
        self.without_header = 0  # lines
        self._state, self._stop = state, stop
        self._finished = False  # the state may not be written any more
        try:
            positions, baseline = self._restore(parser.note.get(NOTE, {}))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the state {state} does not say how far files were read ({error!r}); "
                "delete it to start anew"
            ) from error
        self._set_header(header, detect_header)
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
        if pending:
            yield self._batch(Chunk(pending, n_known))
        if self.source.has_partial:
            self.save()
            self._finished = True
            yield self._batch(self.source.partial_lines())

    def parse(self, batch: Batch) -> None:
        """Give a batch to the parser."""
        self._note_times(batch, self.parser.add_many(batch.messages).tolist())

    def alerts(self, batch: Batch) -> Iterator[Alert]:
        """Give a batch to the parser line by line; the lines after the baseline that open one."""
        ids = []
        for place, message in enumerate(batch.messages):
            match = self.parser.add(message)
            ids.append(match.id)
            if match.opened and place >= batch.n_known:
                yield Alert(
                    datetime.now(UTC).isoformat(timespec="milliseconds"),
                    batch.times[place] if batch.times else None,
                    match.id,
                    match.template,
                    round(match.novelty, 4),
                    batch.start + place + 1,
                    batch.lines[place],
                )
        self._note_times(batch, ids)

    def templates(self) -> list[TemplateRow]:
        """The template table, the most frequent first."""
        time = self.times.lookup()
        lines = max(1, self.parser.seen)
        rows = [
            TemplateRow(
                one.id,
                one.template,
                one.count,
                round(one.count / lines, 6),
                one.first_seen + 1,
                one.last_seen + 1,
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
        self.times.prune(len(parser), parser.resolve)
        parser.note[NOTE] = {
            "positions": self.source.positions,
            "counts": asdict(self.counts),
            "without_header": self.without_header,
            "header": header and [header.pattern, header.fields],
            "times": self.times.state(),
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
        if not note:
            return [], None
        self.counts = LineCounts(**{name: int(n) for name, n in note["counts"].items()})
        self.without_header = int(note["without_header"])
        self.times = SeenTimes.restore(note["times"])
        self.header = None if note["header"] is None else Header.restore(*note["header"])
        baseline = note["baseline"]
        positions = [Position.restore(row) for row in note["positions"]]
        return positions, None if baseline is None else Position.restore(baseline)

    def _set_header(self, header: Header | None, detect: bool) -> None:
        """Use the header that is given, unless lines were parsed with another one before."""
        begun = self.counts.lines > 0
        self._detecting = detect and not begun and self.header is None
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

    def _batch(self, chunk: Chunk) -> Batch:
        lines = chunk.lines
        if self._detecting and lines:
            first, self._detecting = lines[:SAMPLE], False
            self.header, self.timed = detect_header(first), time_share(first)
        start, header = self.parser.seen, self.header
        if header is None or not lines:
            return Batch(start, lines, lines, [], chunk.n_known)
        messages, times = header.strip(lines)
        self.without_header += times.count(None)
        return Batch(start, lines, messages, times if header.has_time else [], chunk.n_known)

    def _note_times(self, batch: Batch, ids: Sequence[int]) -> None:
        if batch.times:
            self.times.note(batch.start, ids, batch.times)

    def _save_if_due(self) -> None:
        """Save after many lines, or after some time where lines come slowly."""
        new = self.parser.seen - self._saved
        due = new >= max(LINES, LINES_PER_SLOT * self.parser.n_variants)
        slow = self.source.live and monotonic() - self._saved_at > PAUSE
        if due or (new and slow):
            self.save()
