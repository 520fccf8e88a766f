"""Where the real streams lie on this machine, and what is said when they do not."""

from __future__ import annotations

import os
from pathlib import Path


class DataMissing(FileNotFoundError):  # noqa: N818
    """A real stream that is neither here nor to be had; the message says what to put where."""


class DataDamaged(ValueError):  # noqa: N818
    """A file that is not the one asked for: cut short, changed, or built to do harm."""


def cache() -> Path:
    """The folder that fetched streams are kept in.

    It is ``$DISTINCTKV_CACHE``, or else ``distinctkv`` in the user's cache folder.
    """
    named = os.environ.get("DISTINCTKV_CACHE")
    if named:
        return Path(named).expanduser()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # A relative path there is invalid and ignored, says the XDG base directory specification.
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "distinctkv"


def folders() -> tuple[Path, ...]:
    """Where a stream is looked for, in this order: ``$DISTINCTKV_DATA``, the cache."""
    named = os.environ.get("DISTINCTKV_DATA")
    return (Path(named).expanduser(), cache()) if named else (cache(),)
