"""Parts of a build: where they are kept, and trying again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, Self, TypeVar

from ..extras import install


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
        raise ImportError(f"to reach {place}: {install('scale')}") from error
    return url_to_fs(place)[0]


@contextmanager
def folder(parts: str | os.PathLike[str] | None) -> Iterator[str]:
    """Where parts are kept: the place given, or one that is gone afterwards."""
    if parts is None:
        # A worker may still be writing when another has failed; that failure is what is told.
        with tempfile.TemporaryDirectory(
            prefix="distinctkv-", ignore_cleanup_errors=True
        ) as passing:
            yield passing
        return
    place = os.fspath(parts)
    if filesystem(place) is None:
        place = str(Path(place).absolute())  # a worker may stand in another folder
        Path(place).mkdir(parents=True, exist_ok=True)
    yield place.rstrip("/")


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
        place, _, end = name.rpartition("/")
        remote.makedirs(place, exist_ok=True)
        # Not every store writes a file at once, but all of them rename it at once.
        remote.put_file(local, passing_name := f"{place}/_{token_hex(8)}.{end}")
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
