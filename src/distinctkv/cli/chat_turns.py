"""What ``distinctkv chat`` does with a talk: it reads, and it answers; Ctrl-C ends no more."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from . import chat_text
from .chat_progress import bar, status
from .io import Stop

if TYPE_CHECKING:
    from ..hf.talk import Talk

SAVING = 60.0  # seconds from one saving of what was read to the next
PART = 20  # of the time, no more than one part of so many goes into saving


def read(talk: Talk, text: str, chunk: int, state: Path | None) -> bool:
    """Take in the text and keep what was read; whether it is more than the model was made for.

    Ctrl-C ends it after the chunk, if there is a state to keep it in.
    """
    steps = talk.read(text, chunk)
    with bar(talk):
        done, total = next(steps)
    some = f"{total - done:,} of " if done else ""
    click.echo(f"{some}{total:,} tokens to read", err=True)
    warned = outgrown(talk, total)
    # Where nothing is kept there is nothing to wait for.
    with Stop() if state is not None else nullcontext() as stop:
        with bar(talk) as advance:
            advance(done, total)
            due = monotonic() + SAVING
            for done, _ in steps:
                advance(done, total)
                if stop is not None and stop():
                    break
                if state is not None and monotonic() >= due:
                    due = _save(talk, state)
        if state is not None:
            _save(talk, state)
    click.echo(status(talk), err=True)
    if stop is not None and stop():
        again = f"; name --context and --state again to read on from token {done:,} of {total:,}"
        click.echo(f"stopped; {state} holds what was read{again if done < total else ''}", err=True)
        sys.exit(stop.status)
    return warned


def _save(talk: Talk, state: Path) -> float:
    """Keep the talk; when to do so again."""
    start = monotonic()
    talk.cache.save(state)
    now = monotonic()
    return now + max(SAVING, PART * (now - start))


def outgrown(talk: Talk, tokens: int) -> bool:
    """Whether so many tokens are more than the model was made for; it is told."""
    longest = getattr(talk.model.config, "max_position_embeddings", None)
    if not longest or tokens <= longest:
        return False
    click.echo(
        f"warning: the talk comes to {tokens:,} tokens, the model was made for {longest:,}; do not "
        "trust its answers from there on",
        err=True,
    )
    return True


def answer(talk: Talk, question: str, tokens: int) -> int:
    """Print an answer; of somebody who types, Ctrl-C ends it alone. The status if a kill came."""
    with (
        Stop() if chat_text.typed() else nullcontext() as stop,
        closing(talk.ask(question, tokens)) as pieces,
    ):
        _show(talk, _until(pieces, stop))
    if stop is None or not stop():
        return 0
    if stop.signal == signal.SIGTERM:
        return stop.status
    click.echo("the answer was stopped; an empty line ends the talk", err=True)
    return 0


def _until(pieces: Iterator[str], stop: Stop | None) -> Iterator[str]:
    for piece in pieces:
        yield piece
        if stop is not None and stop():
            return


def _show(talk: Talk, pieces: Iterator[str]) -> None:
    if not sys.stdout.isatty():
        click.echo(" ".join("".join(pieces).split()))
        sys.stdout.flush()
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    said = ""
    with Live(console=Console(), refresh_per_second=8) as live:
        for piece in pieces:
            said += piece
            live.update(Group(Text(said), Text(status(talk), style="dim")))
