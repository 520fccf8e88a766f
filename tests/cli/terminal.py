"""The command line on a terminal."""

import os
import pty
import re

from tests.cli.logs import start

_codes = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(*arguments, columns=100, rows=40, **given):
    """What a terminal shows when the command is left alone, without colours, and its status."""
    inner, outer = pty.openpty()[::-1]
    os.environ.update(COLUMNS=str(columns), LINES=str(rows))
    try:
        process = start(*arguments, stdin=inner, stdout=inner, stderr=inner, **given)
    finally:
        del os.environ["COLUMNS"], os.environ["LINES"]
    os.close(inner)
    shown = b""
    while piece := _read(outer):
        shown += piece
    os.close(outer)
    return _codes.sub(b"", shown).decode(), process.wait(60)


def _read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end was closed
        return b""
