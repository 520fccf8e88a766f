"""What ``distinctkv chat`` reads: a text to talk about, and questions."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from .chat_progress import size

ODD = "\ufffd"  # stands for bytes that are no text
FEW = 0.1  # of the characters, up to which a file is still a text
PIECE = 1 << 20  # bytes read at once
LARGE = 10_000_000  # bytes of text from which the memory that its tokens take is told
TIMES = 200  # bytes that a tokenizer needs for a byte of a log; 150 for one of a novel


def context(path: Path) -> str:
    """The text of a file, unpacked; what is no UTF-8 in it is replaced, and told."""
    content, damage = _content(path)
    text = content.decode("utf-8", "replace").replace("\0", ODD)
    odd = text.count(ODD)
    if odd > FEW * len(text):
        raise _wrong(
            f"{path} is no UTF-8 text ({odd:,} of {len(text):,} characters are not); convert it"
        )
    if not text.strip():
        why = f"damaged ({damage})" if damage else "empty"
        raise _wrong(f"{path} is {why}; name a file with text")
    if damage:
        _warn(f"{path} is damaged, read up to there: {damage}")
    if odd:
        _warn(f"{path} is not all UTF-8; read as {ODD}: {odd:,}")
    if len(content) > LARGE:
        _warn(
            f"to make tokens of {size(len(content))} of text takes up to "
            f"{size(TIMES * len(content))} of memory; name a part of it if that is too much"
        )
    return text


def _content(path: Path) -> tuple[bytes, str]:
    """The bytes of a text, unpacked, and what damage there is; its size is told before."""
    from ..compression import SourceError, open_compressed

    if str(path) == "-":
        raise _wrong("questions come on standard input; name a file")
    if not path.exists():
        raise _wrong(f"there is no file {path}")
    content, damage = bytearray(), ""
    try:
        with open_compressed(path) as file:
            packed = f", {file.compression}" if file.compression else ""
            bulk = f": {size(path.stat().st_size)}{packed}" if path.is_file() else ""
            click.echo(f"reading {path}{bulk}", err=True)
            try:
                while data := file.read(PIECE):
                    content += data
                    if content[257:262] == b"ustar":
                        raise _wrong(
                            f"{path} is a tar archive, no text; unpack it and name a file in it"
                        )
            except (SourceError, EOFError) as error:
                damage = str(error)
    except (OSError, ImportError) as error:
        raise _wrong(f"cannot read {path}: {error}") from error
    return bytes(content), damage


def typed() -> bool:
    """Whether somebody types the questions."""
    return sys.stdin is not None and sys.stdin.isatty()


def questions() -> Iterator[str]:
    """Lines of standard input that are not empty; on a terminal up to an empty one."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed; questions come from there")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        if typed():
            click.echo("\n> ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line.strip():
            if line and not typed():
                continue
            return
        if ODD in line:
            _warn(f"the question is not all UTF-8, read with {ODD} in it")
        yield line.strip()


def _wrong(said: str) -> click.BadParameter:
    return click.BadParameter(said, param_hint="--context")


def _warn(said: str) -> None:
    click.echo(f"warning: {said}", err=True)
