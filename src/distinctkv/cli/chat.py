"""``distinctkv chat``: ask a model about a long file, with a cache that holds what is distinct."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .locking import alone
from .stopping import quiet_pipe

if TYPE_CHECKING:
    from ..hf.talk import Talk

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)


@click.command("chat")
@click.option("--model", type=FOLDER, metavar="PATH", required=True, help="Folder of the model.")
@click.option("--threshold", type=float, help="Novelty that opens a slot. [default: 1]")
@click.option("--kept", type=float, help="Instead: the part of the tokens to hold.")
@click.option("--budget", type=int, help="Instead: tokens' worth to hold for each head.")
@click.option("--context", type=FILE, metavar="FILE", help="A text to talk about.")
@click.option("--state", type=FILE, metavar="PATH", help="Go on from this file, and keep it.")
@click.option("--tokens", type=click.IntRange(1), default=256, help="Most of an answer.")
@click.option("--chunk", type=click.IntRange(1), default=512, help="Tokens read at a time.")
def command(
    model: Path,
    threshold: float | None,
    kept: float | None,
    budget: int | None,
    context: Path | None,
    state: Path | None,
    tokens: int,
    chunk: int,
) -> None:
    """Talk with a language model about a file, however long.

    The file is read in chunks into a cache that merges what repeats itself. On a terminal, tokens
    seen, slots held and bytes saved are shown as they change. In a pipe, each line that comes in is
    a question, and its answer goes out. An empty line or the end of input ends it.
    """
    size = {"threshold": threshold, "kept": kept, "budget": budget}
    begun = state is not None and state.exists()
    _check(begun, state, context, size)
    text = _text(context)
    with quiet_pipe(), told(), alone(state):
        talk = _begin(model, state if begun else None, size)
        if text is not None:
            _read(talk, text, chunk)
        for question in _questions():
            _answer(talk, question, tokens)
            if state is not None:
                talk.cache.save(state)
    click.echo(status(talk), err=True)


@contextmanager
def told() -> Iterator[None]:
    """Say in a line what is wrong with a model or a file."""
    from ..snapshot import SnapshotError

    try:
        yield
    except (SnapshotError, ValueError, TypeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise click.ClickException(str(error)) from error


def status(talk: Talk) -> str:
    """Tokens seen, slots held, bytes saved."""
    held = talk.cache.summary()
    saved = held.full - held.bytes
    return (
        f"{held.tokens:,} tokens seen, {held.slots.mean() + held.outside:,.0f} held for each head "
        f"({held.kept:.0%}), {held.bytes / 1e6:,.1f} MB held, {saved / 1e6:,.1f} MB saved"
    )


def _check(begun: bool, state: Path | None, context: Path | None, size: dict[str, Any]) -> None:
    given = [name for name, value in size.items() if value is not None]
    if begun and (context or given):
        what = "--context" if context else f"--{given[0]}"
        raise click.BadParameter(
            f"{state} holds a conversation that was begun; leave {what} out to go on with it, or "
            "name another file to begin anew",
            param_hint=what,
        )


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(
            f"{path} is no UTF-8 text (byte {error.start}); convert it first",
            param_hint="--context",
        ) from error
    except OSError as error:
        raise click.BadParameter(
            f"{path} cannot be read: {error.strerror}", param_hint="--context"
        ) from error
    if not text.strip():
        raise click.BadParameter(f"{path} is empty; name a file with text", param_hint="--context")
    return text


def _begin(folder: Path, state: Path | None, size: dict[str, Any]) -> Talk:
    if not (folder / "config.json").is_file():
        raise click.BadParameter(
            f"{folder} holds no model (no config.json); name a folder that save_pretrained made",
            param_hint="--model",
        )
    try:
        from ..hf import DistinctCache, distinct_cache
        from ..hf.plan import Plan
        from ..hf.talk import Talk
    except ImportError as error:
        raise click.ClickException("chat needs more: pip install 'distinctkv[hf]'") from error
    Plan(**size)  # a wrong size is told before a model is loaded
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    local: dict[str, Any] = {"local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(folder, **local)
    safe = local | {"dtype": "auto", "use_safetensors": True}  # weights are never unpickled
    model = AutoModelForCausalLM.from_pretrained(folder, **safe).to(device).eval()
    cache = DistinctCache.load(state, model) if state else distinct_cache(model, **size)
    return Talk(model, tokenizer, cache)


def _read(talk: Talk, text: str, chunk: int) -> None:
    longest = getattr(talk.model.config, "max_position_embeddings", None)
    with _bar(talk) as advance:
        for done, total in talk.read(text, chunk):
            advance(done, total)
    if longest and total > longest:
        click.echo(
            f"warning: the file has {total:,} tokens, the model was made for {longest:,}; do not "
            "trust its answers",
            err=True,
        )
    click.echo(status(talk), err=True)


@contextmanager
def _bar(talk: Talk) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading", total=None)
        yield lambda done, total: progress.update(
            task, completed=done, total=total, description=status(talk)
        )


def _questions() -> Iterator[str]:
    """Lines of standard input; on a terminal, after a prompt."""
    while True:
        if sys.stdin.isatty():
            click.echo("\n> ", err=True, nl=False)
        line = sys.stdin.readline()
        if not line.strip():
            if line and not sys.stdin.isatty():
                continue
            return
        yield line.strip()


def _answer(talk: Talk, question: str, tokens: int) -> None:
    pieces = talk.ask(question, tokens)
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
