"""Bytes in any pieces to lines of bounded length, with all that is odd about them counted."""

from __future__ import annotations

from codecs import utf_8_decode
from dataclasses import asdict, dataclass

# What the summary says of lines that were not plain.
ODD = {
    "empty": "empty",
    "cut": "cut, being very long",
    "undecodable": "not UTF-8",
    "nul": "with NUL bytes",
    "crlf": "ended by CR LF",
    "unended": "without a newline at the end of a file",
    "headerless": "without the header",
}


@dataclass(slots=True)
class Tally:
    """Lines, and how many of them were not plain."""

    lines: int = 0
    empty: int = 0  # nothing but blanks
    cut: int = 0  # longer than is kept
    undecodable: int = 0  # not UTF-8; what is wrong becomes U+FFFD
    nul: int = 0  # with NUL bytes
    crlf: int = 0  # ended the Windows way
    unended: int = 0  # the last of a file, without a newline
    headerless: int = 0  # without the header

    @classmethod
    def restore(cls, saved: dict[str, int]) -> Tally:
        """What a state file kept."""
        if not all(isinstance(n, int) and n >= 0 for n in saved.values()):
            raise ValueError(f"lines are counted by whole numbers, got {saved}")
        return cls(**saved)

    def odd(self) -> dict[str, int]:
        """What is odd, by kind."""
        return {name: n for name, n in asdict(self).items() if name != "lines"}


class Splitter:
    r"""Cuts a stream of bytes into lines, and holds what is not yet a whole one.

    A line keeps ``max_line`` characters. What comes after them is dropped as it is read, so that a
    line without an end takes no more memory than a long one.

    >>> splitter = Splitter(Tally())
    >>> splitter.push(b"one\ntw"), splitter.push(b"o\r\nthr"), splitter.end()
    (['one'], ['two'], ['thr'])
    >>> splitter.tally.crlf, splitter.tally.unended
    (1, 1)
    """

    def __init__(self, tally: Tally, max_line: int = 10_000) -> None:
        self.tally = tally
        self.pending = 0  # bytes of the line that has begun
        self._max_line = max_line
        self._keep = 4 * max_line + 4  # more than max_line characters take
        self._held = b""
        self._last = b""  # last byte of the line that has begun, kept or not

    def push(self, piece: bytes) -> list[str]:
        """The lines that end in this piece."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self._hold(piece)
            return []
        first: list[str] = []
        start = 0
        if self.pending:
            start = piece.find(b"\n") + 1
            self._hold(piece[: start - 1])
            first = [self._finish(ended=True)]
        lines = self._block(piece[start:end]) if start < end else []
        self._hold(piece[end:])
        return first + lines

    def end(self) -> list[str]:
        """The last line, if no newline ends it."""
        if not self.pending:
            return []
        self.tally.unended += 1
        return [self._finish(ended=False)]

    def _hold(self, part: bytes) -> None:
        self.pending += len(part)
        self._held += part[: self._keep - len(self._held)]
        self._last = part[-1:] or self._last

    def _finish(self, ended: bool) -> str:
        """The line that has begun, which is now whole."""
        raw, longer = self._held, self.pending > len(self._held)
        returned = ended and self._last == b"\r"
        self.tally.crlf += returned
        if returned and not longer:
            raw = raw[:-1]
        longer = self.pending - returned > self._keep
        self.pending, self._held, self._last = 0, b"", b""
        return self._line(raw, longer)

    def _block(self, block: bytes) -> list[str]:
        """Whole lines, at the price of one if nothing is odd about them."""
        returns = block.count(b"\r\n")
        if returns:
            self.tally.crlf += returns
            block = block.replace(b"\r\n", b"\n")
        if b"\0" not in block:
            try:
                lines = block.decode().split("\n")
            except UnicodeDecodeError:
                pass
            else:
                lines.pop()
                if max(map(len, lines)) <= self._max_line:
                    self.tally.lines += len(lines)
                    self.tally.empty += len(lines) - sum(map(bool, map(str.strip, lines)))
                    return lines
        keep = self._keep
        return [self._line(raw[:keep], len(raw) > keep) for raw in block.split(b"\n")[:-1]]

    def _line(self, raw: bytes, longer: bool) -> str:
        """One line from its first bytes; whether there are more is for the caller to know."""
        try:
            text, _ = utf_8_decode(raw, "strict", not longer)
        except UnicodeDecodeError:
            text, _ = utf_8_decode(raw, "replace", not longer)
            self.tally.undecodable += 1
        cut = longer or len(text) > self._max_line
        text = text[: self._max_line]
        self.tally.lines += 1
        self.tally.cut += cut
        self.tally.nul += "\0" in text
        self.tally.empty += not text.strip()
        return text
