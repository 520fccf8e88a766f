"""What the commands share: input paths, standard output, signals, the state lock, progress."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import click

STATE = click.Path(dir_okay=False, writable=True, path_type=Path)
FILES = 20  # that are named if one is missing
Update = Callable[..., None]


def input_paths(paths: Sequence[str]) -> list[str]:
    """The files to read, checked; ``-`` (standard input) if none is named and it is no terminal."""
    if not paths and sys.stdin is not None and sys.stdin.isatty():
        raise click.UsageError("name a file to read, or - for standard input")
    for path in paths:
        if path != "-" and not os.path.exists(path):
            raise click.BadParameter(f"there is no file {path}", param_hint="FILE")
        if path != "-" and os.path.isdir(path):
            raise click.BadParameter(f"{path} is a folder; name a file in it", param_hint="FILE")
        if path != "-" and not os.access(path, os.R_OK):
            raise click.ClickException(f"no permission to read {path}")
    return [*paths] or ["-"]


def find_file(path: str, folders: tuple[Path, ...]) -> Path:
    """The file of this name in one of the folders; ValueError if it is outside, or is none."""
    roots = [folder.resolve() for folder in folders]
    names, found = ", ".join(map(str, roots)), [(root / path).resolve() for root in roots]
    inside = [one for one in found if any(one.is_relative_to(root) for root in roots)]
    if not inside:
        raise ValueError(f"{path} is outside {names}")
    if not (files := [one for one in inside if one.is_file()]):
        raise ValueError(f"there is no file {path} in {names}; {_files_below(roots)}")
    return files[0]


def _files_below(roots: list[Path]) -> str:
    pairs = ((root, one) for root in roots for one in root.rglob("*") if one.is_file())
    inside = (
        f"{one.relative_to(root)}" for root, one in pairs if one.resolve().is_relative_to(root)
    )
    found = [*islice(inside, FILES + 1)]
    more = ", ..." if len(found) > FILES else ""
    return f"files are {', '.join(sorted(found[:FILES]))}{more}" if found else "there is none"


@contextmanager
def read_twice(path: str) -> Iterator[str]:
    """A path that can be read twice: a pipe or standard input is copied to a temporary file."""
    if path != "-" and os.path.isfile(path):
        yield path
        return
    from ..logs.digest import spooled

    if path == "-" and sys.stdin is None:
        raise click.ClickException("standard input is closed; name a file to read")
    with open(path, "rb") if path != "-" else nullcontext(sys.stdin.buffer) as source:
        parts = iter(lambda: source.read(1 << 20), b"")
        with spooled(parts) as copy:
            yield copy


def total_size(paths: Sequence[str]) -> int | None:
    """Bytes in all files; None if one of them is not a regular file."""
    if not all(map(os.path.isfile, paths)):
        return None
    return sum(map(os.path.getsize, paths))


@contextmanager
def file_errors() -> Iterator[None]:
    """Report unreadable inputs and snapshots as one line instead of a traceback."""
    from ..compression import SourceError
    from ..snapshot import SnapshotError

    try:
        yield
    except (SnapshotError, SourceError) as error:
        raise click.ClickException(str(error)) from error


class OutputError(Exception):
    """Standard output cannot be written; the cause is the operating system's error."""


class _Stdout(io.FileIO):
    """File descriptor 1. A write that fails raises `OutputError`; later writes are discarded."""

    _failed = False

    def write(self, data: Any) -> int:  # noqa: ANN401
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            raise OutputError from error


@contextmanager
def standard_output() -> Iterator[None]:
    """Standard output in UTF-8; a failed write to it, and no other error, ends the command.

    A closed pipe (``... | head``) ends it silently with the exit status of SIGPIPE.
    """
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; send it to a file or a pipe")
    before = sys.stdout
    try:
        before.flush()
        number = before.fileno()
    except io.UnsupportedOperation:  # replaced by an object in memory
        yield
        return
    raw = io.BufferedWriter(_Stdout(number, "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, encoding="utf-8", line_buffering=before.isatty())
    try:
        yield
        sys.stdout.flush()
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            sys.exit(128 + 13)
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        raise click.ClickException(f"cannot write to standard output: {reason}") from error
    finally:
        with suppress(OutputError):
            sys.stdout.close()
        sys.stdout = before


class Stop:
    """True after Ctrl-C or SIGTERM. A second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether to stop now."""
        return self.signal != 0

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    @property
    def status(self) -> int:
        """The exit status for a shell: 128 + the signal, or 0."""
        return 128 + self.signal if self.signal else 0


def lock_path(state: Path) -> Path:
    """The lock file of a state; a symbolic link and its target have the same one."""
    target = Path(os.path.realpath(state))
    return target.with_name(f"{target.name}.lock")


@contextmanager
def lock_state(state: Path | None) -> Iterator[None]:
    """Hold the lock of a state file; the operating system releases it if the process dies."""
    if state is None:
        yield
        return
    from filelock import FileLock, Timeout

    if not state.parent.is_dir():
        raise click.BadParameter(f"there is no folder {state.parent}", param_hint="--state")
    if state.exists() and not state.is_file():
        raise click.BadParameter(
            f"{state} is not a regular file; name another path", param_hint="--state"
        )
    lock = FileLock(lock_path(state), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise click.ClickException(
            f"the state {state} is in use by another run; wait for it, or name another state"
        ) from error
    except OSError as error:
        raise click.ClickException(f"cannot write {lock_path(state)}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def progress(title: str, total: float | None = None) -> Iterator[Update]:
    """A progress bar on standard error, if that is a terminal.

    Call ``update(done, total=None, text="")``; the text is shown beside the bar.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total=None, text="": None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda done, total=total, text="": bar.update(
            task, completed=done, total=total, text=text
        )


def speed(number: int, what: str, seconds: float) -> str:
    """How many things took how long.

    >>> speed(2000, "lines", 0.0372)
    'lines: 2,000 in 0.037 s (53,763 lines/s)'
    """
    digits = 1 if seconds >= 1 else 3
    rate = f" ({number / seconds:,.0f} {what}/s)" if number else ""
    return f"{what}: {number:,} in {seconds:.{digits}f} s{rate}"


def visible(text: str) -> str:
    r"""Text with control characters escaped, so that it cannot control a terminal.

    >>> visible("red \x1b[31m and\ttab")
    'red \\x1b[31m and tab'
    """
    if text.isprintable():
        return text
    text = text.replace("\t", " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def valid(text: str) -> str:
    r"""Text that UTF-8 can encode: a lone surrogate becomes U+FFFD.

    >>> valid("caf\udce9")
    'caf\ufffd'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
