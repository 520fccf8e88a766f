"""The records of one file, cut from its bytes as they come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from math import inf

from ..logs.places import Trail
from ..logs.sources import Source
from .finding import MOST, Finder
from .forms import LONGEST, Form, Raw, TooLong
from .guessing import refuse_parquet
from .separated import Csv
from .spots import Spot

CELL = 1 << 20  # bytes read at a time
TICK = 0.2  # seconds to wait for some
Aside = tuple[Form, bytes, Spot]  # the last bytes of a file, and how and where they are to be cut


def batches(
    source: Source,
    trail: Trail,
    spot: Spot,
    found: Finder,
    stop: Callable[[], bool],
    aside: list[Aside] | None,
) -> Iterator[list[Raw]]:
    """The records of a file; empty batches while waiting.

    A last record that no newline ends may be half written: it goes ``aside``, if that is given.
    """
    held, form, waited = b"", found.known(trail.offset), 0.0
    while True:
        piece, parts = yield from _gather(source, held, MOST if form is None else 0)
        held = b"".join(parts)
        waited = inf if stop() else waited + TICK * (piece is None)
        if not source.regular and not trail.offset:
            refuse_parquet(held, source.name)
        if form is None:
            whole = aside is not None
            form = found.begin(held, source, over=piece == b"", waited=waited, whole=whole)
            if isinstance(form, Csv):
                start = len(found.columns) + 1
                trail.pass_by(held[:start])
                held, spot.passed = held[start:], 1
        if form is None:
            yield []
            continue
        records, end = form.cut(held, over=False)
        passed = held.count(b"\n", 0, end)
        trail.pass_by(held[:end])
        held = held[end:]
        yield [one if len(one.raw) <= LONGEST else TooLong.at(one.line) for one in records]
        spot.passed += passed
        if len(held) > LONGEST:
            held = yield from _pass_over(source, trail, held, spot, stop, aside)
        if piece == b"":
            break
    if held and aside is not None:
        aside.append((form, held, spot))
    elif held:
        trail.pass_by(held)
        trail.end()
        yield form.cut(held, over=True)[0]


def _gather(
    source: Source, held: bytes, least: int
) -> Generator[list[Raw], None, tuple[bytes | None, list[bytes]]]:
    """The next bytes, and what was held with all up to them.

    Beyond the ``least`` that is to be seen at once, bytes without a newline are passed on only with
    those that come after: to look at the start of a long line again and again would take long.
    """
    parts, size, lines = [held], len(held), b"\n" in held
    while True:
        piece = _piece(source)
        parts.append(piece or b"")
        size += len(parts[-1])
        if not piece or lines or b"\n" in piece or size <= least or size > LONGEST:
            return piece, parts
        yield []


def _pass_over(
    source: Source,
    trail: Trail,
    held: bytes,
    spot: Spot,
    stop: Callable[[], bool],
    aside: list[Aside] | None,
) -> Generator[list[Raw], None, bytes]:
    """Read to the end of a line that is too long, which may never come; what comes after it."""
    while b"\n" not in held:
        trail.pass_by(held)
        piece = _piece(source)
        if piece == b"" and aside is not None:
            aside.append((TooLong(), b"", spot))
            return b""
        if piece == b"" or (stop() and aside is None):
            trail.end()
            yield [TooLong.at(0)]
            return b""
        held = piece or b""
        yield []
    end = held.find(b"\n") + 1
    trail.pass_by(held[:end])
    yield [TooLong.at(0)]
    spot.passed += 1
    return held[end:]


def _piece(source: Source) -> bytes | None:
    """The next bytes; none at the end; None if there may be some later."""
    if source.regular:
        return source.fill(CELL - source.offset % CELL)
    return source.read(CELL) if source.ready(TICK) else None
