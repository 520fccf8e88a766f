"""Encoders: hashed character n-grams, and how the encoder of a user is named in a snapshot."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import is_
from types import FunctionType
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

Encoder = Callable[[Any], ArrayLike]

CHARACTERS = 1 << 16  # hashed at a time, so that the arrays stay in the L2 cache
TEXTS = 512
START, END = "\x02", "\x03"


@dataclass(frozen=True, slots=True)
class NGrams:
    """Counts of all ``n``-grams of characters, hashed into ``width`` buckets with a random sign.

    The cosine of two texts is about the share of n-grams that they have in common. The encoding is
    the same in every process and on every machine. One changed character changes ``n`` n-grams.

    >>> one, other, third = NGrams()(["the door is open", "the door is open!", "no such file"])
    >>> def cosine(a, b):
    ...     return round(float(a @ b / np.sqrt((a @ a) * (b @ b))), 2)
    >>> cosine(one, other), cosine(one, third)
    (0.8, -0.07)
    """

    width: int = 512
    n: int = 4

    def __post_init__(self) -> None:
        """Raise for sizes out of range."""
        for name, number, most in (("width", self.width, 1 << 20), ("n", self.n, 64)):
            if not 1 <= number <= most or number % 1:
                raise ValueError(f"{name} must be a whole number in 1..{most}, got {number!r}")
            object.__setattr__(self, name, int(number))  # JSON has no NumPy integers

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row (L, width) per text, none of them all zeros."""
        rows = np.empty((len(texts), self.width), np.float32)
        for part in _parts(texts):
            long = part.stop - part.start == 1 and len(texts[part.start]) > CHARACTERS
            rows[part] = self._long(texts[part.start]) if long else self._count(texts[part])
        for lost in np.flatnonzero(~rows.any(axis=1)).tolist():  # its n-grams cancel each other out
            code = crc32(texts[lost].encode("utf-8", "surrogatepass"))
            rows[lost, code % self.width] = 1.0
        return rows

    def _long(self, text: str) -> NDArray[np.float64]:
        """The counts of one long text, block by block, as `_count` gives them."""
        sums = np.zeros((1, self.width))
        for start in range(-1, len(text), CHARACTERS):
            stop = start + CHARACTERS + self.n - 1
            body = f"{START if start < 0 else ''}{text[max(0, start) : stop]}"
            body += END * (min(stop, len(text) + self.n - 1) - len(text))
            sums += self._bucket_sums(_hashed(_codes(body), self.n), 0, 1)
        return sums

    def _count(self, texts: Sequence[str]) -> NDArray[np.float64]:
        n = self.n
        # Markers at both ends: each text has one n-gram more than characters, even an empty one.
        body = "".join([f"{START}{text}{END * (n - 1)}" for text in texts])
        codes = _codes(body)
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + n
        hashes = _hashed(codes, n)
        if len(texts) == 1:
            return self._bucket_sums(hashes, 0, 1)
        inside = np.ones(len(codes), bool)
        ends = np.cumsum(lengths)
        for back in range(1, n):
            inside[ends - back] = False  # these n-grams would reach into the next text
        starts = np.repeat(np.arange(len(texts)) * self.width, lengths)[inside]
        hashes = hashes[inside[: len(hashes)]]
        return self._bucket_sums(hashes, starts, len(texts))

    def _bucket_sums(
        self, hashes: NDArray[np.uint32], starts: NDArray[np.int64] | int, n_texts: int
    ) -> NDArray[np.float64]:
        """The high bits of a hash choose the bucket, the lowest bit the sign."""
        buckets = (hashes.astype(np.uint64) * np.uint64(self.width)) >> np.uint64(32)
        signs = 1.0 - 2.0 * (hashes & np.uint32(1))
        places = buckets.view(np.int64) + starts
        sums: NDArray[Any] = np.bincount(places, signs, n_texts * self.width)
        return sums.reshape(-1, self.width)


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _hashed(codes: NDArray[np.uint32], n: int) -> NDArray[np.uint32]:
    """A hash of every n-gram of codes, modulo 2^32."""
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


class MissingEncoder:
    """Stands for a user's encoder that was not given when a file was loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, _: Any) -> NoReturn:  # noqa: ANN401
        """Raise with the name of the missing encoder."""
        raise TypeError(
            f"this was saved with the encoder {self.name}, which a file cannot hold; give it again "
            "when you load it: load(path, encode=...)"
        )


def describe_encoder(encode: Encoder) -> dict[str, int] | str:
    """The sizes of `NGrams`, or the name of another encoder, as a snapshot holds them."""
    return asdict(encode) if isinstance(encode, NGrams) else _name(encode)


def restore_encoder(saved: dict[str, int] | str, given: Encoder | None) -> Encoder:
    """The given encoder, or `NGrams` of the saved sizes, or a `MissingEncoder`."""
    if given is None:
        return NGrams(**saved) if isinstance(saved, dict) else MissingEncoder(str(saved))
    if (name := describe_encoder(given)) != saved:
        warnings.warn(
            f"this was saved with the encoder {saved}, and {name} is given; if they do not encode "
            "alike, new records cannot be compared with those kept",
            stacklevel=3,
        )
    return given


def check_same_encoder(ours: Encoder, theirs: Encoder) -> None:
    """Raise for two different functions of one name, such as lambdas; others have equal names."""
    kinds = (FunctionType, partial)
    if not isinstance(ours, kinds) or not isinstance(theirs, kinds):
        return
    (code, values), (other, their_values) = _contents(ours), _contents(theirs)
    if code != other or not all(map(is_, values, their_values)):
        raise ValueError(
            f"the encoders are two functions of the name {_name(ours)}, and may not encode alike; "
            "give both the same function"
        )


def _name(encode: Encoder) -> str:
    if isinstance(encode, MissingEncoder):
        return encode.name
    inner = getattr(encode, "__func__", encode)
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{kind.__module__}.{kind.__qualname__}"


def _contents(function: FunctionType | partial[Any]) -> tuple[Any, list[Any]]:
    """The code of a function, and the values that are bound to it."""
    if isinstance(function, partial):
        given = function.keywords
        return (function.func, len(function.args), [*given]), [*function.args, *given.values()]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    given = function.__kwdefaults__ or {}
    return function.__code__, [*cells, *(function.__defaults__ or ()), *given.values()]
