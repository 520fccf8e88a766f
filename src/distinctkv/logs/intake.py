"""The door of a parser: lines as text of bounded length, and the leaves of lines seen before."""

from __future__ import annotations

from collections.abc import Iterable

from .leaves import Leaf
from .lines import Line, Reader, collapse, glue
from .skeleton import Skeletons
from .templates import Templates

MEMO = 1 << 15  # lines remembered at most
LONG = 1000  # characters: longer lines are not remembered, nor kept whole as examples


def several(lines: Iterable[str | bytes]) -> list[str | bytes]:
    """Lines as they are, unless one was given where there should be several, or one is no line."""
    if isinstance(lines, (str, bytes, bytearray)):
        kind = type(lines).__name__
        raise TypeError(f"lines are given one by one, got {kind}; put it in a list: [line]")
    rows = [*lines]
    for number, line in enumerate(rows):
        if not isinstance(line, (str, bytes)):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__} at {number}")
    return rows


class Intake:
    """Lines on their way in; those that collapse to the same text are read once."""

    def __init__(self, max_line: int, templates: Templates) -> None:
        self.max_line = max_line
        self.truncated = 0  # lines that were cut
        self._reader = Reader()
        self._memo: dict[str, Leaf] = {}
        self._ages: dict[str, int] = {}  # of those in leaves that stand for values, see `Skeletons`
        self._skeletons = Skeletons(templates, self._reader.words)
        self.bones: str | None = None  # of the line that was last not remembered

    def enter(self, line: str | bytes) -> tuple[str, bool]:
        """The line as text of bounded length, and whether it was cut."""
        if isinstance(line, bytes):
            line = line[: 4 * self.max_line + 4].decode("utf-8", "replace")
        elif not isinstance(line, str):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__}")
        return str(line[: self.max_line]), len(line) > self.max_line

    def recall(self, line: str | bytes) -> tuple[str, str, Leaf | None]:
        """The line as text, what it collapses to, and its leaf if that was seen before."""
        if type(line) is not str or len(line) > self.max_line:
            line, cut = self.enter(line)
            self.truncated += cut
        short = collapse(line)
        leaf, self.bones = self._held(short), None
        if leaf is None:
            loose, short = short, glue(short)
            if (leaf := self._held(short)) is not None:
                self._keep(loose, leaf)
            elif bones := self._skeletons.of(short):
                leaf, self.bones = self._skeletons.recall(bones), bones
        return line, short, leaf

    def _held(self, short: str) -> Leaf | None:
        leaf = self._memo.get(short)
        if leaf is None or leaf.template is None:
            return None
        known = not leaf.folded or self._ages.get(short) == self._skeletons.age(leaf)
        return leaf if known else None

    def read(self, short: str) -> Line:
        """A collapsed line cut into tokens."""
        return self._reader.read(short)

    def read_whole(self, line: str | bytes) -> tuple[str, Line]:
        """A line as text and cut into tokens; nothing is counted."""
        text, _ = self.enter(line)
        return text, self._reader.read(glue(collapse(text)))

    def remember(self, short: str, leaf: Leaf, found: bool) -> None:
        """Know the leaf of the line last recalled and of those like it; found, or opened for it."""
        if self.bones and (found or leaf.folded):
            self._skeletons.remember(self.bones, leaf)
        else:
            self._keep(short, leaf)

    def _keep(self, short: str, leaf: Leaf) -> None:
        if len(short) <= LONG:
            if len(self._memo) >= MEMO:
                self._memo.clear()
                self._ages.clear()
            self._memo[short] = leaf
            if leaf.folded:
                self._ages[short] = self._skeletons.age(leaf)
