"""A stream by name: found in a folder, or fetched into the cache, or asked for in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from distinctkv.snapshot import replace

from .archives import MAX_BYTES
from .places import DataDamaged, DataMissing, cache, folders

Files = Mapping[str, bytes]
"""What files hold, by their path below the data folder."""

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class DataSet(Generic[T]):
    """How a stream is found, fetched and read.

    A choice is a group of files that together are enough; the first one present is read. Sources
    are tried in turn. ``parse`` makes the stream of the files, and raises `DataDamaged` if they
    are not what they should be; nothing enters the cache before it has passed.
    """

    name: str
    licence: str
    advice: str
    choices: tuple[tuple[str, ...], ...]
    sources: tuple[Callable[[], Files], ...]
    parse: Callable[[Files], T]

    def find(self) -> dict[str, Path] | None:
        """The files, if they are on this machine; never a fetch."""
        for folder in folders():
            for choice in self.choices:
                paths = {name: folder / name for name in choice}
                if all(path.is_file() for path in paths.values()):
                    return paths
        return None

    def load(self) -> T:
        """The stream, fetched if need be."""
        paths = self.find()
        if paths is None:
            return self._fetch()
        try:
            return self.parse({name: _read(path) for name, path in paths.items()})
        except DataDamaged as error:
            places = ", ".join(map(str, paths.values()))
            raise DataDamaged(f"{error}; remove or replace what was read: {places}") from error

    def get(self) -> dict[str, Path]:
        """The files, fetched if need be."""
        found = self.find()
        if found is None:
            self._fetch()
            found = self.find()
            assert found is not None
        return found

    def _fetch(self) -> T:
        reasons = []
        for source in self.sources:
            try:
                files = source()
                stream = self.parse(files)
                for name, content in files.items():
                    path = cache() / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    replace(path, content)
            except (OSError, DataDamaged) as error:
                reasons.append(str(error))
            else:
                return stream
        raise DataMissing(self._plea(reasons))

    def _plea(self, reasons: list[str]) -> str:
        lines = [
            f"{self.name} is not in {' or '.join(map(str, folders()))}, and could not be fetched:",
            *(f"  {reason}" for reason in reasons),
            f"{self.advice} into such a folder; DISTINCTKV_DATA names another one.",
            f"Licence: {self.licence}.",
        ]
        return "\n".join(lines)


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise DataDamaged(f"{path} has {size:,} bytes, more than the {MAX_BYTES:,} we read")
    return path.read_bytes()
