"""Lines of files one after the other, in batches, and the place that each batch ends at."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from time import sleep

from .known import Known
from .places import Place, Trail, latest
from .sources import Source, arrived, open_early
from .splitting import Splitter, Tally
from .unpacking import SourceError

CELL = 1 << 20  # bytes of text in a batch
TICK = 0.2  # seconds between looks at a file that is followed
Batches = Generator[list[str], None, bool]


class Feed:
    """Batches of lines from files, from where they were left; ``-`` is standard input.

    Batches end where the text says, not where a read happened to: a feed that goes on from a place
    gives the batches that one without a break gives. Only what comes through a pipe, or from a
    file that is followed, is given as it comes; such a feed gives empty batches while it waits.

    The last line of a file may be half written. With ``aside``, one without a newline is not in
    the batches, and its place is before it: `unended` gives it.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        follow: bool = False,
        places: Sequence[Place] = (),
        tally: Tally | None = None,
        cell: int = CELL,
        aside: bool = False,
    ) -> None:
        if follow and len(paths) > 1:
            raise SourceError(f"only one file can be followed, got {len(paths)}")
        self.tally = Tally() if tally is None else tally
        self.damages: dict[str, str] = {}
        self.rotations = 0
        self.waiting = False  # whether all that is there was given
        self.until: Place | None = None  # where a batch has to end, too
        self.paths, self._follow, self._cell = paths, follow, cell
        self._aside, self._held = aside, list[Splitter]()
        self._known, self._left = Known(places), list[Place]()
        self._source: Source | None = None
        self._trail = Trail()
        self._passed = 0
        self._begun = 0  # where in the text this batch began

    def __iter__(self) -> Iterator[list[str]]:
        for path in self.paths:
            source, trail = self._known.find((yield from self._open(path)))
            while (yield from self._read(source, trail)):
                self.rotations += 1
                source, trail = (yield from self._reopen(path)), Trail()

    @property
    def strayed(self) -> bool:
        """Whether this batch is of another text than ``until``, or began after it."""
        if self.rotations or self.until is None or self._source is None:
            return self.rotations > 0
        return self._begun >= self.until.offset or not self.until.may_fit(self._source)

    @property
    def before(self) -> bool:
        """Whether ``until`` is still to come; for a pipe, whether it has more to give."""
        if self.until is None or self._source is None:
            return not self.waiting
        return self._source.offset < self.until.offset

    @property
    def halfway(self) -> bool:
        """Whether a line has begun and not ended."""
        return self._source is not None and self._source.offset > self._trail.offset

    @property
    def live(self) -> bool:
        """Whether lines are given as they come."""
        return self._follow or (self._source is not None and not self._source.regular)

    @property
    def names(self) -> list[str]:
        """What is read."""
        return ["standard input" if path == "-" else path for path in self.paths]

    @property
    def name(self) -> str:
        """What is being read."""
        return self._source.name if self._source else ""

    @property
    def passed(self) -> int:
        """Bytes of the files that were read, packed as they are."""
        return self._passed + (self._source.passed if self._source else 0)

    @property
    def places(self) -> list[Place]:
        """Where to go on, for the texts that were read last and can be read again."""
        source = self._source
        here = [Place.of(source, self._trail)] if source and source.regular else []
        return latest([*self._known, *self._left, *here], len(self.paths))

    @property
    def set_aside(self) -> bool:
        """Whether last lines of files were set aside."""
        return bool(self._held)

    def unended(self) -> list[str]:
        """The last lines of files that were set aside, once."""
        lines = [line for splitter in self._held for line in splitter.end()]
        self._held = []
        return lines

    def _open(self, path: str) -> Generator[list[str], None, Source]:
        """A file once it has something to read: what it is packed in is seen from that."""
        file = open_early(path)
        try:
            while not arrived(file, TICK):
                yield []
        except GeneratorExit:
            if path != "-":
                file.close()
            raise
        return Source(path, file)

    def _reopen(self, path: str) -> Generator[list[str], None, Source]:
        """The file that took the name of another, once it can be read."""
        while True:
            try:
                return Source(path)
            except SourceError:
                yield []
                sleep(TICK)

    def _read(self, source: Source, trail: Trail) -> Batches:
        """The batches of a file; whether another took its name."""
        self._source, self._trail = source, trail
        try:
            renewed = yield from self._batches(source, Splitter(self.tally))
        finally:
            source.close()
        if source.damage:
            self.damages[source.name] = source.damage
        self._left += [Place.of(source, trail)] if source.regular else []
        self._passed += source.passed
        self._source = None
        return renewed

    def _batches(self, source: Source, splitter: Splitter) -> Batches:
        follow, renewed = self._follow and source.regular, False
        if follow and source.kind != "plain":
            raise SourceError(f"{source.name} is {source.kind}; only plain text can be followed")
        while True:
            offset = self._begun = source.offset
            piece = self._piece(source, follow)
            if follow and not renewed and source.overwritten(offset, self._trail.recent):
                renewed = True
                break
            if piece:
                self._trail.pass_by(piece)
                self.waiting = False
                yield splitter.push(piece)
            elif piece is not None and (renewed or not follow):
                break
            elif not (renewed := follow and source.renewed()):
                self.waiting = True
                yield []
                sleep(TICK if follow else 0)
        if self._aside and source.regular and not renewed:
            self._held += [splitter] if splitter.pending else []
        else:
            self._trail.end()
            yield splitter.end()
        return renewed

    def _piece(self, source: Source, follow: bool) -> bytes | None:
        """The next bytes; none at the end; None if there may be some later."""
        left = self.until.offset - source.offset if self.until else 0
        most = left if left > 0 else self._cell
        if source.regular and not follow:
            return source.fill(min(most, self._cell - source.offset % self._cell))
        return source.read(min(most, self._cell)) if source.ready(TICK) else None
