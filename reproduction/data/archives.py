"""Archives read into memory, none of them trusted.

Nothing is ever unpacked into a folder, so no name in an archive can reach a file. Names that try,
links, locked members and what swells beyond all measure are refused all the same: an archive that
has them is not the one we asked for.
"""

from __future__ import annotations

import gzip
import re
import stat
import zlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from .places import DataDamaged

MAX_BYTES = 256 * 2**20
"""No file of any stream is larger, packed or not."""

MAX_RATIO = 100
"""Tables of text shrink to a tenth, hardly to a hundredth."""

BLOCK = 2**16


class Readable(Protocol):
    """Anything bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, none at the end."""


def unzip(content: bytes, wanted: Sequence[str], what: str = "the archive") -> dict[str, bytes]:
    """The members of a zip archive that match each of the ``wanted`` patterns.

    >>> made = BytesIO()
    >>> with ZipFile(made, "w") as archive:
    ...     archive.writestr("sky/blue.csv", "1,2")
    >>> unzip(made.getvalue(), ["*.csv"])
    {'sky/blue.csv': b'1,2'}
    """
    try:
        with ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
            for member in members:
                _refuse_tricks(member, what)
            chosen = [_choose(members, pattern, what) for pattern in wanted]
            return {member.filename: _unpack(archive, member, what) for member in chosen}
    except DataDamaged:
        raise
    # A broken directory can make zipfile seek before the start or decode what is no name.
    except (BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error) as error:
        raise DataDamaged(f"{what} is not a whole zip file ({error})") from error


def gunzip(content: bytes, what: str = "the file") -> bytes:
    """What a gzip file holds.

    >>> gunzip(gzip.compress(b"grass"))
    b'grass'
    """
    try:
        with gzip.GzipFile(fileobj=BytesIO(content)) as stream:
            return _drain(stream, len(content), what)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataDamaged(f"{what} is not a whole gzip file ({error})") from error


def _refuse_tricks(member: ZipInfo, what: str) -> None:
    name = member.filename
    parts = re.split(r"[/\\]", name)
    if not parts[0] or ".." in parts or ":" in name:
        raise DataDamaged(f"{what} has a member that leaves its folder: {name!r}")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise DataDamaged(f"{what} has a link in it: {name!r}")
    if member.flag_bits & 1 or member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise DataDamaged(f"{what} has a member locked or packed in a rare way: {name!r}")


def _choose(members: list[ZipInfo], pattern: str, what: str) -> ZipInfo:
    found = [member for member in members if fnmatchcase(member.filename, pattern)]
    if len(found) != 1:
        raise DataDamaged(f"{what} has {len(found)} members named {pattern}, not 1")
    return found[0]


def _unpack(archive: ZipFile, member: ZipInfo, what: str) -> bytes:
    with archive.open(member) as stream:
        return _drain(stream, member.compress_size, f"{member.filename} in {what}")


def _drain(stream: Readable, packed: int, what: str) -> bytes:
    """All that a stream gives, unless it gives more than so few bytes can honestly hold."""
    limit = min(MAX_BYTES, MAX_RATIO * max(packed, BLOCK))
    content = bytearray()
    while block := stream.read(BLOCK):
        content += block
        if len(content) > limit:
            raise DataDamaged(f"{what} unpacks {packed:,} bytes to more than {limit:,}")
    return bytes(content)
