"""What a job has written to a file, by which the file is known again before it is cut back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..logs.places import digest
from ..logs.sources import HEAD
from ..logs.unpacking import SourceError


class OutputError(SourceError):
    """An output that is not what the state wrote, and what to do about it."""


class Written(NamedTuple):
    """A file, how much of it the state stands for, and the end of that."""

    path: str
    inode: int
    length: int
    tail: str

    @classmethod
    def of(cls, path: Path, length: int) -> Written:
        """What is in a file up to some length."""
        return cls(str(path.resolve()), path.stat().st_ino, length, _tail(path, length))

    @classmethod
    def restore(cls, row: Sequence[int | str] | None) -> Written | None:
        """What a state kept; None if it wrote to no file."""
        if row is None:
            return None
        found = cls(*row)  # type: ignore[arg-type]
        texts, numbers = (found.path, found.tail), (found.inode, found.length)
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"an output has a length, got {row}")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"an output has a path and a digest, got {row}")
        return found

    def check(self, path: Path) -> None:
        """Refuse another file than the one that was written."""
        if self.length == 0 and not path.exists():
            return
        if path.exists() and self._fits(path):
            return
        gone = "" if path.exists() else "missing, and so "
        raise OutputError(
            f"{path} is {gone}not what the state says was written ({self.length:,} bytes to "
            f"{self.path}); name that file, or another state; without -o what is new goes to "
            "standard output"
        )

    def _fits(self, path: Path) -> bool:
        found = path.stat()
        if found.st_size < self.length or _tail(path, self.length) != self.tail:
            return False
        if found.st_size == self.length:  # nothing is cut off, wherever it was moved to
            return True
        # A short text says little of the file that begins with it.
        known = self.length >= HEAD or found.st_ino == self.inode
        return known and str(path.resolve()) == self.path


def check_unwritten(path: Path) -> None:
    """Refuse a file with something in it to a state that did not write it."""
    if path.exists() and path.stat().st_size:
        raise OutputError(
            f"{path} is not empty, and the state did not write it; name another output, or delete "
            "it if nobody needs it"
        )


def _tail(path: Path, length: int) -> str:
    """What stands for the bytes before a place in a file."""
    with path.open("rb") as file:
        file.seek(max(0, length - HEAD), os.SEEK_SET)
        return digest(file.read(min(length, HEAD)))
