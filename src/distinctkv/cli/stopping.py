"""How a command ends before its input does: Ctrl-C, a polite kill, a reader that went away."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click


class Stop:
    """True once Ctrl-C or SIGTERM came. A second one stops at once, without saving."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether to stop now."""
        return self.signal != 0

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number

    @property
    def status(self) -> int:
        """The exit status that a shell expects."""
        return 128 + self.signal if self.signal else 0


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End like other tools of the shell when the output cannot be written, as in ``... | head``."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; send it to a file or a pipe")
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(128 + 13)
    except OSError as error:
        _drop_output()
        raise click.ClickException(f"cannot write the output: {error.strerror}") from error


def _drop_output() -> None:
    """Let what is left to write go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
