"""One run at a time on a state."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


def lock_of(state: Path) -> Path:
    """The file that is locked, next to the state, wherever links lead to."""
    target = Path(os.path.realpath(state))
    return target.with_name(f"{target.name}.lock")


@contextmanager
def alone(state: Path | None) -> Iterator[None]:
    """Hold the lock of a state, a file next to it; the system lets go of it if we are killed."""
    if state is not None and not state.parent.is_dir():
        raise click.BadParameter(f"there is no folder {state.parent}", param_hint="--state")
    try:
        there = state is not None and state.stat()
    except FileNotFoundError:
        there = None
    except OSError as error:  # links in a circle, for one
        raise click.BadParameter(f"{state}: {error.strerror}", param_hint="--state") from error
    if there and not stat.S_ISREG(there.st_mode):
        raise click.BadParameter(
            f"{state} is not a regular file; name another path", param_hint="--state"
        )
    if state is None or os.name == "nt":
        yield
        return
    path = lock_of(state)
    number = _lock(path, state)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


def _lock(path: Path, state: Path) -> int:
    """The open lock file; one that its last holder removed meanwhile is opened anew."""
    import fcntl

    while True:
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(number).st_ino:
                return number
        except FileNotFoundError:
            pass
        except BlockingIOError as error:
            os.close(number)
            raise click.ClickException(
                f"the state {state} is in use by another run; wait for it, or name another state"
            ) from error
        os.close(number)
