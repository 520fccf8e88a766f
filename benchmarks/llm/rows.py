"""Where the results are kept: a line of JSON for one way, one part kept, one context.

The rows of a context are written at once, and a later run does what is not there yet. Rows that
other code made are not counted.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Sequence, Set
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from . import questions as llm_asking
from .way import Way

FULL = "full"  # the way that keeps all
ASIDE = 1_000_000  # seeds from here on are for choosing
Cell = tuple[str, int, int, str, float]  # task, length, seed, way, part


@dataclass(frozen=True, slots=True)
class Case:
    """A context by its task, its length in tokens and its seed."""

    task: str
    length: int
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """How a way did on a context: what it was to keep, what it kept, and the answers."""

    task: str
    length: int
    seed: int
    way: str
    part: float
    kept: float
    accuracy: float
    nll: float
    seconds: float  # to compress for all parts that were asked for, by the clock
    code: str

    @property
    def cell(self) -> Cell:
        """What no two rows share."""
        return self.task, self.length, self.seed, self.way, self.part


def digest(*facts: str) -> str:
    """A short digest of the code that rows depend on, and of what else they do."""
    import distinctkv.hf

    here = Path(__file__).parent
    sources = [*Path(distinctkv.hf.__file__).parent.glob("**/*.py")]
    sources += Path(llm_asking.__file__).parent.glob("llm_*.py")
    # Not what chooses, judges and prints: that changes no row.
    names = ("contest", "same_tokens", "ours", "pool", "presses", "recipe", "texts", "ways")
    sources += [here / f"{name}.py" for name in names]
    made = hashlib.sha256(" ".join(facts).encode())
    for path in sorted(sources):
        made.update(path.read_bytes())
    return made.hexdigest()[:12]


def load(path: Path, code: str | None = None) -> list[Row]:
    """Rows of this code, or of any; a line that a crash cut short is passed over."""
    rows = {}
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") if path.exists() else nullcontext([]) as lines:
        lines = list(lines)
    for line in lines:
        try:
            row = Row(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        if code in (None, row.code):
            rows[row.cell] = row
    return list(rows.values())


def append(path: Path, rows: Iterable[Row]) -> None:
    """All rows in one write, so that other processes can write to the same file."""
    append_lines(path, [json.dumps(asdict(row)) for row in rows])


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Lines in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(line + "\n" for line in lines)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        # A cut line before ours must not swallow our first.
        os.write(file, ("\n" + text).encode())
    finally:
        os.close(file)


def missing(
    done: Set[Cell], case: Case, all_ways: Sequence[Way], parts: Sequence[float]
) -> dict[Way, list[float]]:
    """What is left to do for a context."""

    def new(way: Way, part: float) -> bool:
        return (case.task, case.length, case.seed, way.name, part) not in done

    asked = {way: ([1.0] if way.sizes_itself else parts) for way in all_ways}
    left = {way: [part for part in some if new(way, part)] for way, some in asked.items()}
    return {way: some for way, some in left.items() if some}
