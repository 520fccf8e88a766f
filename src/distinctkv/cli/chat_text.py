"""What ``distinctkv chat`` reads: a text to talk about, and questions."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ODD = "\ufffd"  # stands for bytes that are no text
FEW = 0.1  # of the characters, up to which a file is still a text


def context(path: Path) -> str:
    """The text of a file, unpacked; what is no UTF-8 in it is replaced, and told."""
    from ..streams.files.sources import Source
    from ..streams.files.unpacking import PIECE, SourceError

    if str(path) == "-":
        raise _wrong("questions come on standard input; name a file")
    if not path.exists():
        raise _wrong(f"there is no file {path}")
    try:
        source = Source(str(path))
    except SourceError as error:
        raise _wrong(str(error)) from error
    content = b"".join(iter(lambda: source.read(PIECE), b""))
    source.close()
    text = content.decode("utf-8", "replace").replace("\0", ODD)
    odd = text.count(ODD)
    if odd > FEW * len(text):
        raise _wrong(
            f"{path} is no UTF-8 text ({odd:,} of {len(text):,} characters are not); convert it"
        )
    if not text.strip():
        why = f"damaged ({source.damage})" if source.damage else "empty"
        raise _wrong(f"{path} is {why}; name a file with text")
    if source.damage:
        click.echo(f"warning: {path} is damaged, read up to there: {source.damage}", err=True)
    if odd:
        click.echo(f"warning: {path} is not all UTF-8; read as {ODD}: {odd:,}", err=True)
    return text


def questions() -> Iterator[str]:
    """Lines of standard input; on a terminal, after a prompt."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed; questions come from there")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        if sys.stdin.isatty():
            click.echo("\n> ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line.strip():
            if line and not sys.stdin.isatty():
                continue
            return
        if ODD in line:
            click.echo(f"warning: the question is not all UTF-8, read with {ODD} in it", err=True)
        yield line.strip()


def _wrong(said: str) -> click.BadParameter:
    return click.BadParameter(said, param_hint="--context")
