"""Parts of a build: what they are called, where they are kept, and trying again."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, Self, TypeVar

import numpy as np


class Mergeable(Protocol):
    """What a shard is built into: a `Cache`, a `LogParser`, or anything else that can do this."""

    def absorb(self, other: Any, /) -> object:  # noqa: ANN401
        """Take in another, as if its stream had followed this one's."""
        ...

    def save(self, path: str | os.PathLike[str], /) -> None:
        """Write it to a file."""
        ...

    @classmethod
    def load(cls, path: str | os.PathLike[str], /) -> Self:
        """Read it from a file."""
        ...


R = TypeVar("R")
T = TypeVar("T", bound=Mergeable)
TRIES = 3


class ShardError(RuntimeError):
    """A shard that could not be built, after all tries."""


def filesystem(place: str) -> Any:  # noqa: ANN401
    """The fsspec file system of a URL; None for a path."""
    if "://" not in place:
        return None
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"to reach {place}: pip install 'distinctkv[scale]'") from error
    return url_to_fs(place)[0]


@contextmanager
def folder(parts: str | os.PathLike[str] | None) -> Iterator[str]:
    """Where parts are kept: the place given, or one that is gone afterwards."""
    if parts is None:
        with tempfile.TemporaryDirectory(prefix="distinctkv-") as passing:
            yield passing
        return
    place = os.fspath(parts).rstrip("/")
    if filesystem(place) is None:
        Path(place).mkdir(parents=True, exist_ok=True)
    yield place


def attempt(work: Callable[[], R], what: str) -> R:
    """What ``work`` returns, tried again if it fails; bad input fails every time, so at once."""
    for number in range(1, TRIES + 1):
        try:
            return work()
        except (TypeError, ValueError) as error:
            raise ShardError(f"{what}: {error}") from error
        except Exception as error:
            if number == TRIES:
                raise ShardError(f"{what} failed {TRIES} times, last with {error!r}") from error
    raise AssertionError("unreachable")


def store(part: Mergeable, name: str) -> None:
    """Save a part, whole or not at all."""
    if (remote := filesystem(name)) is None:
        part.save(name)
        return
    with tempfile.TemporaryDirectory() as passing:
        local = Path(passing) / "part"
        part.save(local)
        remote.makedirs(name.rpartition("/")[0], exist_ok=True)
        # Not every store writes a file at once, but all of them rename it at once.
        remote.put_file(local, passing_name := f"{name}.{token_hex(8)}")
        remote.mv(passing_name, name)


def fetch(kind: type[T], name: str) -> T:
    """Load a part."""
    if (remote := filesystem(name)) is None:
        if not Path(name).exists():
            raise FileNotFoundError(
                f"part {name} is not on this machine; give parts= a folder or URL that all see"
            )
        return kind.load(name)
    with tempfile.TemporaryDirectory() as passing:
        local = Path(passing) / "part"
        remote.get_file(name, local)
        return kind.load(local)


def finished(name: str) -> bool:
    """Whether a part is there."""
    remote = filesystem(name)
    return Path(name).exists() if remote is None else bool(remote.exists(name))


def join_name(left: str, right: str) -> str:
    """The name of what two parts become."""
    place = left.rpartition("/")[0]
    return f"{place}/{_digest(left.rpartition('/')[2], right.rpartition('/')[2])}.part"


def fingerprint(*things: Any) -> str:  # noqa: ANN401
    """A name that changes with what it is for.

    Files are told apart by size and time, arrays by content, functions by their code, and what can
    be saved by what it would save.
    """
    return _digest(*(word for thing in things for word in _words(thing)))


def _words(thing: Any) -> list[Any]:  # noqa: ANN401
    if isinstance(thing, np.ndarray):
        return [thing.dtype.str, thing.shape, hashlib.sha256(thing.tobytes()).digest()]
    if isinstance(thing, partial):
        return [*_words(thing.func), thing.args, sorted(thing.keywords.items())]
    if isinstance(thing, str | os.PathLike):
        return _file(os.fspath(thing))
    if hasattr(thing, "save"):
        with tempfile.TemporaryDirectory() as passing:
            thing.save(Path(passing) / "blank")
            return [Path(passing, "blank").read_bytes()]
    if (code := getattr(thing, "__code__", None)) is None:
        return [thing]
    held = [cell.cell_contents for cell in thing.__closure__ or ()]
    given = [thing.__defaults__, thing.__kwdefaults__, *held]
    return [thing.__qualname__, code.co_code, code.co_consts, *given]


def _file(place: str) -> list[Any]:
    with suppress(OSError):
        if (remote := filesystem(place)) is not None:
            return [place, remote.ukey(place)]
        seen = Path(place).stat()
        return [place, seen.st_size, seen.st_mtime_ns]
    return [place]


def _digest(*words: Any) -> str:  # noqa: ANN401
    return hashlib.sha256(repr(words).encode()).hexdigest()[:24]
