"""What ``distinctkv chat`` tells while it reads: a bar on a terminal, lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..hf.summary import Summary
    from ..hf.talk import Talk

Advance = Callable[[int, int], None]  # tokens done, tokens in all
LONG = 4096  # tokens from which a pipe is told each tenth of a text
EVERY = 10.0  # seconds from one line to the next in a pipe
FIRST = "making tokens of the text"


def status(talk: Talk) -> str:
    """Tokens seen, slots held, bytes saved."""
    held = talk.cache.summary()
    saved = _saved(held, "more than a full cache holds")
    return (
        f"{held.tokens:,} tokens seen, {held.slots.mean() + held.outside:,.0f} held for each head "
        f"({part(held.kept)}), {size(held.bytes)} held, {saved}"
    )


def beside(held: Summary, done: int, total: int) -> str:
    """What stands beside a bar: with its 16 columns no more than 80, up to 100,000,000 tokens."""
    return f"{done:,}/{total:,} {part(held.kept)} held, {size(held.bytes)}, {_saved(held, 'more')}"


def _saved(held: Summary, otherwise: str) -> str:
    saved = held.full - held.bytes
    return f"{size(abs(saved))} {'saved' if saved >= 0 else otherwise}"


def size(n_bytes: int) -> str:
    """A number of bytes, short.

    >>> size(57_600), size(2_900_000)
    ('57.6 kB', '2.9 MB')
    """
    from rich.filesize import decimal

    return decimal(n_bytes)


def part(share: float) -> str:
    """A share in percent; a little is not nothing.

    >>> part(0.254), part(0.004), part(0.0)
    ('25%', '<1%', '0%')
    """
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


@contextmanager
def bar(talk: Talk) -> Iterator[Advance]:
    """What to call as tokens are read; it is told on standard error."""
    with _drawn(talk) if sys.stderr.isatty() else lines() as advance:
        yield advance


@contextmanager
def _drawn(talk: Talk) -> Iterator[Advance]:
    """A bar, a count and what is held, in 80 columns."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(16), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(FIRST, total=None)

        def advance(done: int, total: int) -> None:
            said = beside(talk.cache.summary(), done, total) if done else f"0/{total:,}"
            progress.update(task, completed=done, total=total, description=said)

        yield advance


@contextmanager
def lines() -> Iterator[Advance]:
    """A line for each tenth of a long text, and one whenever some time has passed."""
    now, passed, over = FIRST, 0, Event()

    def advance(done: int, total: int) -> None:
        nonlocal now, passed
        now = f"reading: {done:,} of {total:,} tokens"
        if total > LONG and 10 * done // total > passed:
            passed = 10 * done // total
            click.echo(now, err=True)

    def repeat() -> None:
        with suppress(OSError):  # nobody listens any more
            while not over.wait(EVERY):
                click.echo(now, err=True)

    # A thread: making tokens, or one chunk in a large model, may take longer than that.
    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        over.set()
        thread.join()
