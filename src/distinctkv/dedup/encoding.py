"""Texts as vectors without a model: hashed character n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

CHARACTERS = 1 << 16  # hashed at a time, so that the arrays stay in a processor's cache
TEXTS = 512
START, END = "\x02", "\x03"


@dataclass(frozen=True, slots=True)
class NGrams:
    """Counts of all runs of ``n`` characters, hashed into ``width`` numbers with a random sign.

    The cosine of two texts is about the share of runs that they have in common. It is the same in
    every process and on every machine. One changed character touches ``n`` runs of about as many as
    there are characters.

    >>> one, other, third = NGrams()(["the door is open", "the door is open!", "no such file"])
    >>> def cosine(a, b):
    ...     return round(float(a @ b / np.sqrt((a @ a) * (b @ b))), 2)
    >>> cosine(one, other), cosine(one, third)
    (0.8, -0.07)
    """

    width: int = 512
    n: int = 4

    def __post_init__(self) -> None:
        """Refuse sizes that mean nothing."""
        for name, number, most in (("width", self.width, 1 << 20), ("n", self.n, 64)):
            whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not whole or not 1 <= number <= most:
                raise ValueError(f"{name} must be a whole number in 1..{most}, got {number!r}")
            object.__setattr__(self, name, int(number))  # as a file can hold it

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row (L, width) per text, none of them all zeros."""
        rows = np.empty((len(texts), self.width), np.float32)
        for part in _parts(texts):
            long = part.stop - part.start == 1 and len(texts[part.start]) > CHARACTERS
            rows[part] = self._long(texts[part.start]) if long else self._count(texts[part])
        for lost in np.flatnonzero(~rows.any(axis=1)).tolist():  # runs that cancel each other out
            code = crc32(texts[lost].encode("utf-8", "surrogatepass"))
            rows[lost, code % self.width] = 1.0
        return rows

    def one(self, text: str, count: Callable[..., None]) -> NDArray[np.float32]:
        """The row of one text, by `compiled.count`."""
        row: NDArray[np.float32] = np.zeros(self.width, np.float32)
        if len(text) > CHARACTERS:
            row[:] = self([text])[0]
            return row
        count(_codes(f"{START}{text}{END * (self.n - 1)}"), self.n, row)
        return row if row.any() else self([text])[0]

    def _long(self, text: str) -> NDArray[np.float64]:
        """The counts of one text as `_count` has them, with little of it in hand at a time."""
        sums = np.zeros((1, self.width))
        for start in range(-1, len(text), CHARACTERS):
            stop = start + CHARACTERS + self.n - 1
            body = f"{START if start < 0 else ''}{text[max(0, start) : stop]}"
            body += END * (min(stop, len(text) + self.n - 1) - len(text))
            sums += self._summed(_mixed(_codes(body), self.n), 0, 1)
        return sums

    def _count(self, texts: Sequence[str]) -> NDArray[np.float64]:
        n = self.n
        # Marks at both ends: each text has one run more than characters, even an empty one.
        body = "".join([f"{START}{text}{END * (n - 1)}" for text in texts])
        codes = _codes(body)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + n
        hashes = _mixed(codes, n)
        if len(texts) == 1:
            return self._summed(hashes, 0, 1)
        whole = np.ones(len(codes), bool)
        ends = np.cumsum(lengths)
        for back in range(1, n):
            whole[ends - back] = False  # these runs would reach into the next text
        starts = np.repeat(np.arange(len(texts)) * self.width, lengths)[whole]
        hashes = hashes[whole[: len(hashes)]]
        return self._summed(hashes, starts, len(texts))

    def _summed(
        self, hashes: NDArray[np.uint32], starts: NDArray[np.int64] | int, n_texts: int
    ) -> NDArray[np.float64]:
        """The high bits of a hash choose the number, the lowest one its sign."""
        cells = (hashes.astype(np.uint64) * np.uint64(self.width)) >> np.uint64(32)
        signs = 1.0 - 2.0 * (hashes & np.uint32(1))
        placed = cells.view(np.int64) + starts
        sums: NDArray[Any] = np.bincount(placed, signs, n_texts * self.width)
        return sums.reshape(-1, self.width)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _mixed(codes: NDArray[np.uint32], n: int) -> NDArray[np.uint32]:
    """A hash of every run of ``n`` codes; sums wrap around, as they should."""
    size = len(codes) - n + 1
    hashes = codes[:size].copy()
    for place in range(1, n):
        hashes *= np.uint32(0x9E3779B1)
        hashes ^= codes[place : place + size]
    for factor, shift in ((0x85EBCA6B, 15), (0xC2B2AE35, 13), (0x9E3779B1, 16)):
        hashes *= np.uint32(factor)
        hashes ^= hashes >> np.uint32(shift)
    return hashes


def _parts(texts: Sequence[str]) -> Iterator[slice]:
    """Slices of at most `TEXTS` texts and, unless one is longer, `CHARACTERS` characters."""
    start = held = 0
    for place, text in enumerate(texts):
        if place > start and (held + len(text) > CHARACTERS or place - start == TEXTS):
            yield slice(start, place)
            start, held = place, 0
        held += len(text)
    if start < len(texts):
        yield slice(start, len(texts))
