"""How far a text was read, in a form that finds the text again."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, TypeVar

from .sources import HEAD, Source

END = (1 << 62) - 1  # an offset that no text has
REMEMBERED = 10_000  # texts whose place is kept; more if more are named

T = TypeVar("T")


class Place(NamedTuple):
    """An offset in a text, which is known again by its start and by what is before the offset.

    Neither its name nor its packing matters: a log may be rotated and packed meanwhile. A text
    that was shorter than `HEAD` must be the same file, though, or the same as a whole, for its
    start says little.
    """

    n_head: int
    head: str
    inode: int
    offset: int
    trail: str

    @classmethod
    def of(cls, source: Source, trail: Trail) -> Place:
        """The end of the last whole line that was read."""
        head = digest(source.head)
        return cls(len(source.head), head, source.inode, trail.offset, digest(trail.before))

    @classmethod
    def end(cls, source: Source) -> Place:
        """The end of a text as long as it was when opened; it is known by its start only."""
        offset = END if source.length is None else source.length
        return cls(len(source.head), digest(source.head), source.inode, offset, "")

    @classmethod
    def restore(cls, row: Sequence[int | str]) -> Place:
        """What a state file kept."""
        place = cls(*row)  # type: ignore[arg-type]
        texts, numbers = (place.head, place.trail), (place.n_head, place.inode, place.offset)
        whole = all(isinstance(n, int) and 0 <= n < 1 << 64 for n in numbers)
        if not whole or not all(isinstance(text, str) for text in texts) or place.offset >> 62:
            raise ValueError(f"a place is made of counts and digests, got {row}")
        return place

    def may_fit(self, source: Source) -> bool:
        """Whether the start of a text is right, so that it is worth going to the offset."""
        whole = self.n_head == HEAD or self.n_head == len(source.head)
        known = whole or self.inode == source.inode
        return known and digest(source.head[: self.n_head]) == self.head


class Trail:
    """The end of the last whole line in a text, the bytes before it, and those read last."""

    def __init__(self, offset: int = 0, before: bytes = b"") -> None:
        self.offset, self.before = offset, before
        self.recent, self._read = before, offset

    def pass_by(self, piece: bytes) -> None:
        """Take note of the next piece of the text."""
        if end := piece.rfind(b"\n") + 1:
            self.before = (self.recent + piece[:end])[-HEAD:]
            self.offset = self._read + end
        self.recent = (self.recent + piece[-HEAD:])[-HEAD:]
        self._read += len(piece)

    def end(self) -> None:
        """The text is over: what it ends with was a line, too."""
        self.before, self.offset = self.recent, self._read


def latest(held: Sequence[T], n_named: int) -> list[T]:
    """What a state keeps: the last, and so at least all that a run names, with as many before."""
    return [*held[-max(REMEMBERED, 2 * n_named) :]]


def digest(content: bytes) -> str:
    """What stands for some bytes in a state file."""
    return sha256(content).hexdigest()[:32]
