"""The records of one file, cut from its bytes as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

from ..files.places import Trail
from ..files.sources import Source
from .finding import Finder
from .forms import LONGEST, Form, Raw
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
        piece = _piece(source)
        held += piece or b""
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
        if len(held) > LONGEST:
            records.append(Raw(b"", None, passed, f"it is longer than {LONGEST:,} bytes"))
            held, passed = _pass_over(source, trail, held), passed + 1
        yield records
        spot.passed += passed
        if piece == b"":
            break
    if held and aside is not None:
        aside.append((form, held, spot))
    elif held:
        trail.pass_by(held)
        trail.end()
        yield form.cut(held, over=True)[0]


def _pass_over(source: Source, trail: Trail, held: bytes) -> bytes:
    """Read to the end of a line that is too long; what comes after it."""
    while b"\n" not in held:
        trail.pass_by(held)
        held = source.read(CELL)
        if not held:
            return b""
    end = held.find(b"\n") + 1
    trail.pass_by(held[:end])
    return held[end:]


def _piece(source: Source) -> bytes | None:
    """The next bytes; none at the end; None if there may be some later."""
    if source.regular:
        return source.fill(CELL - source.offset % CELL)
    return source.read(CELL) if source.ready(TICK) else None
