"""Files that are whole or not there: safetensors, a digest, one atomic rename, never a pickle."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = "1"
TOO_MUCH = (MemoryError, RecursionError)  # what a header that promises too much may raise


class SnapshotError(ValueError):
    """A file that is not a whole, unchanged snapshot of this format."""


def save(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, NDArray[Any]],
    state: Mapping[str, Any],
) -> None:
    """Write tensors and a JSON state so that a crash leaves either the old file or the new one."""
    from safetensors.numpy import save as pack

    arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # One entry only: safetensors shuffles several, and equal states should give equal bytes.
    head = {"version": VERSION, "kind": kind, "state": dict(state)}
    head["digest"] = _digest(head, arrays)
    replace(Path(path), pack(arrays, metadata={"distinctkv": json.dumps(head, sort_keys=True)}))


def load(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, NDArray[Any]], Any]:
    """Tensors and state of a snapshot, every byte of it checked."""
    from safetensors import SafetensorError, safe_open

    if Path(path).is_dir():
        raise SnapshotError(f"{path} is a folder, not a whole snapshot")
    # Whatever keeps a file from being opened, safetensors says that it is not there.
    with Path(path).open("rb"):
        pass
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            meta = file.metadata() or {}
            if "distinctkv" not in meta:
                raise SnapshotError(f"{path} is not a distinctkv snapshot; it has another origin")
            text = meta["distinctkv"]
            head = json.loads(text)
            version = head["version"]
            if version != VERSION:
                raise SnapshotError(
                    f"{path} has format version {version!r}, this release reads {VERSION!r}; "
                    "load it with the release that wrote it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            # Two spellings of a float, say, give one number: the text must be as it was written.
            same = json.dumps(head, sort_keys=True) == text
            digest, found, state = head.pop("digest"), head["kind"], head["state"]
    except (FileNotFoundError, SnapshotError):
        raise
    except (SafetensorError, OSError, ValueError, TypeError, LookupError, *TOO_MUCH) as error:
        raise SnapshotError(
            f"{path} is not a whole snapshot: it is another kind of file, or damaged ({error})"
        ) from error
    if not same or digest != _digest(head, tensors):
        raise SnapshotError(f"{path} was changed after it was written; go back to an earlier copy")
    if found != kind:
        raise SnapshotError(f"{path} holds a {found!r}, not a {kind!r}")
    return tensors, state


def replace(path: Path, content: bytes) -> None:
    """Put a file in place whole: temporary file, fsync, rename, fsync of the folder.

    A link stays a link: the file that it leads to is replaced. A private file stays private.
    """
    path = _target(path)
    part = path.with_name(f".{path.name}.{token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            with suppress(OSError):  # there may be none yet
                part.chmod(stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    _sweep(path)


def sync_folder(path: Path) -> None:
    """See to it that the names in a folder survive a loss of power, where that can be done."""
    try:
        folder = os.open(path, os.O_RDONLY)
    except PermissionError:  # it may be written and not read, or this is Windows
        return
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(folder)


def _target(path: Path) -> Path:
    """The file that a path leads to; what is there already must be a regular file."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode  # refuses links in a circle
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
    """Remove what saves of this file left behind that were killed an hour ago or more."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > 3600:
                part.unlink()


def _digest(head: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    sha = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha.update(json.dumps([name, tensor.dtype.str, tensor.shape]).encode())
        sha.update(tensor.tobytes())
    return sha.hexdigest()
