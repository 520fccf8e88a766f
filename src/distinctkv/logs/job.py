"""A parser at work on files: it keeps its place, and may be killed at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from ..snapshot import SnapshotError
from .feed import CELL, Feed
from .headers import SAMPLE, Header, guess, timed
from .history import History, Sample
from .parser import LogParser
from .places import Place
from .sightings import Sightings
from .sources import Source
from .splitting import Tally

NOTE = "distinctkv parse"  # what a job keeps in the parser's note; other keys are not its own
LINES = 50_000  # between two saves; more if there are many slots to save
LINES_PER_SLOT = 25
PAUSE = 5.0  # seconds between two saves of what comes slowly
ENOUGH, PATIENCE = 50, 3.0  # lines, or seconds, to guess the header of what comes slowly


class Batch(NamedTuple):
    """Lines as they are and without their header; ``start`` is the parser's count before them."""

    start: int
    lines: list[str]
    messages: list[str]
    times: list[str | None]  # empty if the header does not say


class Job:
    """The batches of some files, and one file with all it takes to go on after them.

    The state holds the parser and, in the parser's note, how far each text was read. It is written
    in one piece, between batches, so that after a kill no line is lost and none counts twice. The
    last line of a file, if no newline ends it, comes after all others and is not in the state: it
    may be half written, and is read again.
    """

    def __init__(
        self,
        paths: Sequence[str],
        parser: LogParser,
        *,
        state: Path | None = None,
        follow: bool = False,
        cell: int = CELL,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.parser = parser
        self.header: Header | None = None
        self.guessing = False
        self.timed: float | None = None  # share of lines that begin with a time, once guessed
        self.silent = 0.0  # lines up to here were there when learning began, and are not new
        self._learn: Place | None = None
        self._state, self._stop, self._over = state, stop, False
        try:
            places = self._restore(parser.note.get(NOTE, {}))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise SnapshotError(
                f"the state {state} does not say how far it was ({error!r}); "
                "delete it to start anew"
            ) from error
        self.feed = Feed(
            paths,
            follow=follow,
            places=places,
            tally=self.tally,
            cell=cell,
            aside=state is not None,
        )
        self.feed.until = self._learn
        self.silent = inf if self._learn else 0.0
        self._saved, self._saved_at = parser.seen, monotonic()

    def learn(self) -> None:
        """Take what is there now for known, and keep in the state how far that is."""
        if self._learn is not None or self.parser.seen:
            return
        self.silent = inf
        [path] = self.feed.paths
        if path != "-" and os.path.isfile(path):
            source = Source(path)
            self._learn = self.feed.until = Place.end(source)
            source.close()
            self.save()

    def __iter__(self) -> Iterator[Batch]:
        """All batches until the end, or until it is time to stop; empty ones while waiting."""
        held: list[str] = []
        since = monotonic()
        for lines in self.feed:
            if self.silent == inf and self.feed.strayed:
                self.silent = self.parser.seen + len(held)
            held += lines
            if self.silent == inf and not self.feed.before:
                self.silent = self.parser.seen + len(held) + self.feed.halfway
            if not self.guessing or self._enough(held, monotonic() - since):
                yield self._batch(held)
                held = []
            if self._stop():
                break
        if held:
            yield self._batch(held)
        yield from self._unended()

    def take(self, batch: Batch) -> None:
        """Give a batch to the parser."""
        self.taken(batch, self.parser.add_many(batch.messages).tolist())

    def taken(self, batch: Batch, ids: Sequence[int]) -> None:
        """The parser has a batch, and gave its lines these ids; save if it is time."""
        if batch.times:
            self.sightings.note(batch.start, ids, batch.times)
        parser = self.parser
        self.sample()
        new = parser.seen - self._saved
        due = new >= max(LINES, LINES_PER_SLOT * parser.n_leaves)
        slow = self.feed.live and monotonic() - self._saved_at > PAUSE
        if due or (new and slow):
            self.save()

    def sample(self) -> None:
        """Take note of how the parser does, now and then."""
        if self.parser.seen >= self.history.due:
            self.history.add(Sample.of(self.parser))

    def save(self) -> None:
        """Write the state, if there is to be one; not after lines that may be half written."""
        if self._over:
            return
        parser, header = self.parser, self.header
        self.sightings.prune(len(parser), parser.resolve)
        parser.note[NOTE] = {
            "places": self.feed.places,
            "tally": asdict(self.tally),
            "header": header and [header.pattern, header.fields],
            "sightings": self.sightings.state(),
            "history": self.history.samples,
            "learn": self._learn,
        }
        if self._state is not None:
            try:
                parser.save(self._state)
            except OSError as error:
                raise SnapshotError(f"cannot write {self._state}: {error.strerror}") from error
        self._saved, self._saved_at = parser.seen, monotonic()

    def _unended(self) -> Iterator[Batch]:
        """The last lines of files, if no newline ends them; the state is saved before."""
        if self.feed.set_aside:
            self.save()
            self._over = True
            yield self._batch(self.feed.unended())

    def _restore(self, note: dict[str, Any]) -> list[Place]:
        if not note:
            self.tally, self.history, self.sightings = Tally(), History(), Sightings()
            return []
        self.tally = Tally.restore(note["tally"])
        self.history = History([Sample.restore(row) for row in note["history"]])
        self.sightings = Sightings.restore(note["sightings"])
        self.header = None if note["header"] is None else Header.restore(*note["header"])
        learn = note.get("learn")  # older states have none
        self._learn = None if learn is None else Place.restore(learn)
        return [Place.restore(row) for row in note["places"]]

    def _enough(self, held: list[str], seconds: float) -> bool:
        """Whether to guess the header now."""
        slow = self.feed.waiting and (len(held) >= ENOUGH or seconds > PATIENCE)
        return bool(held) and (len(held) >= SAMPLE or slow)

    def _batch(self, lines: list[str]) -> Batch:
        if self.guessing and lines:
            first, self.guessing = lines[:SAMPLE], False
            self.header, self.timed = guess(first), timed(first)
        start, header = self.parser.seen, self.header
        if header is None or not lines:
            return Batch(start, lines, lines, [])
        messages, times = header.strip(lines)
        self.tally.headerless += times.count(None)
        return Batch(start, lines, messages, times if header.tells_time else [])
