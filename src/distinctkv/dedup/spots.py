"""Where in its file a record is, for people to find it."""

from __future__ import annotations

from ..logs.sources import Source

CELL = 1 << 20  # bytes read at a time


class Spot:
    """A file that is read from an offset on, and the lines of it that were passed by since."""

    def __init__(self, source: Source, offset: int) -> None:
        self.file, self.passed = source.name, 0
        self._path, self._offset = source.path, offset
        self._before = None if offset else 0  # lines before the offset, once they are asked for

    @property
    def line(self) -> int:
        """Number, from 1, of the line that comes next."""
        if self._before is None:
            self._before = _newlines(self._path, self._offset)
        return 1 + self._before + self.passed


def _newlines(path: str, offset: int) -> int:
    source, found = Source(path), 0
    try:
        while piece := source.read(min(CELL, offset - source.offset)):
            found += piece.count(b"\n")
    finally:
        source.close()
    return found
