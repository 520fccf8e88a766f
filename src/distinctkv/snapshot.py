"""Snapshots: safetensors with a digest, written to a temporary file and renamed; no pickle."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

VERSION = "1"
DAY = 86_400  # seconds
HUGE = (MemoryError, RecursionError)  # raised for a header that claims absurd sizes


class SnapshotError(ValueError):
    """A file that is damaged, or not a snapshot of this format."""


def save(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, NDArray[Any]],
    state: Mapping[str, Any],
) -> None:
    """Write tensors and a JSON state; after a crash either the old file or the new one is there."""
    from safetensors.numpy import save as pack

    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # One entry only: safetensors writes several in random order, and equal states give equal bytes.
    head = {"version": VERSION, "kind": kind, "state": dict(state)}
    head["digest"] = _digest(head, arrays)
    replace(Path(path), pack(arrays, metadata={"distinctkv": json.dumps(head, sort_keys=True)}))


def load(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Any]:
    """Tensors and state of a snapshot, after checking its digest."""
    from safetensors import SafetensorError, safe_open

    if Path(path).is_dir():
        raise SnapshotError(f"{path} is a folder, not a complete snapshot")
    # Opened here for the right error: safetensors reports every failure as a missing file.
    with Path(path).open("rb"):
        pass
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            meta = file.metadata() or {}
            if "distinctkv" not in meta:
                raise SnapshotError(f"{path} is a safetensors file, but not a distinctkv snapshot")
            text = meta["distinctkv"]
            head = json.loads(text)
            version = head["version"]
            if version != VERSION:
                raise SnapshotError(
                    f"{path} has format version {version!r}, this release reads {VERSION!r}; "
                    "load it with the release that wrote it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            # Two JSON texts may give equal values: the text itself must be unchanged.
            same = json.dumps(head, sort_keys=True) == text
            digest, found, state = head.pop("digest"), head["kind"], head["state"]
    except (FileNotFoundError, SnapshotError):
        raise
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, *HUGE) as error:
        raise SnapshotError(
            f"{path} is not a complete snapshot: it is another kind of file, or damaged ({error})"
        ) from error
    if not same or digest != _digest(head, tensors):
        raise SnapshotError(f"{path} was changed after it was written; go back to an earlier copy")
    if found != kind:
        raise SnapshotError(f"{path} holds a {found!r}, not a {kind!r}")
    return tensors, state


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically by one with this content, as `replacing` does."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that replaces `path` atomically once the block ends; an error leaves the old one.

    Temporary file, fsync, rename, fsync of the folder. The target of a symbolic link is replaced,
    not the link. Permissions are kept.
    """
    path = _target(path)
    part = path.with_name(f".{path.name}.{token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            with suppress(OSError):  # no file yet
                part.chmod(stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    _sweep(path)


def sync_folder(path: Path) -> None:
    """Flush a folder, so that a renamed file survives a power loss."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder that cannot be read, or Windows
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system cannot do it
            raise
    finally:
        os.close(folder)


def _target(path: Path) -> Path:
    """The file that a path leads to; an existing one must be a regular file."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
        if not stat.S_ISREG(mode):
            raise FileExistsError(
                errno.EEXIST, "it is not a regular file; name another path", str(path)
            )
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}", str(path))
    return path


def _sweep(path: Path) -> None:
    """Remove temporary files to which nothing was written for a day: their writer was killed."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > DAY:
                part.unlink()


def _digest(head: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    sha = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(json.dumps([name, tensor.dtype.str, tensor.shape]).encode())
        sha.update(tensor.tobytes())
    return sha.hexdigest()
