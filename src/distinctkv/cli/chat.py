"""``distinctkv chat``: ask a model about a long file, with a cache that holds what is distinct."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..extras import install
from . import chat_model, chat_text, chat_turns
from .chat_progress import status
from .chat_sizes import BUDGET, KEPT, THRESHOLD
from .io import lock_state, standard_output
from .snapshots import TALK, read_kind

if TYPE_CHECKING:
    from ..hf.talk import Talk

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)
CHUNK = 512  # tokens that are read at a time
# What an error of the library says to Python, as a shell says it.
SPELLING = {
    "use a DynamicCache for it": "name another model",
    "set config.sliding_window to None": 'set "sliding_window" to null in its config.json',
    "give the whole context in one forward pass": "name another model",
    "load it in a type of wider range, bfloat16 or float32, and reset() the cache": (
        'set "dtype" to "float32" in its config.json, or name another model'
    ),
}


@click.command("chat")
@click.option("--model", type=FOLDER, metavar="PATH", required=True, help="Folder of the model.")
@click.option("--threshold", type=THRESHOLD, help="Novelty that opens a slot; 1 unless told.")
@click.option("--kept", type=KEPT, help="Instead: the part of the tokens to hold.")
@click.option("--budget", type=BUDGET, help="Instead: tokens' worth to hold for each head.")
@click.option(
    "--careful",
    is_flag=True,
    help="Merge less what is attended to; reads more slowly. Give it a larger --chunk.",
)
@click.option("--context", type=FILE, metavar="FILE", help="A text to talk about; packed or not.")
@click.option("--state", type=FILE, metavar="PATH", help="Go on from this file, and keep it.")
@click.option(
    "--tokens", type=click.IntRange(1), default=256, show_default=True, help="Most of an answer."
)
@click.option("--chunk", type=click.IntRange(1), help="Tokens read at a time; 512 unless told.")
def command(
    model: Path,
    threshold: float | None,
    kept: float | None,
    budget: int | None,
    careful: bool,
    context: Path | None,
    state: Path | None,
    tokens: int,
    chunk: int | None,
) -> None:
    """Talk with a language model about a file, however long.

    The file is read in chunks into a cache that merges what repeats itself. On a terminal, tokens
    seen, slots held and bytes saved are shown as they change, and an empty line or the end of input
    ends it. In a pipe, each line that comes in is a question, and its answer goes out; empty lines
    are skipped, and the end of input ends it.

    The cache does not lengthen what a model can take in: beyond the tokens that it was made for
    (max_position_embeddings in its config.json) its answers are not to be trusted, and a warning
    says so before the file is read.

    Ctrl-C while the file is read ends it after the chunk, if there is a --state: name both again,
    and it is read on from there, as if nothing had been. On a terminal Ctrl-C in an answer ends the
    answer. Twice, it ends the command at once.
    """
    size = {"threshold": threshold, "kept": kept, "budget": budget}
    begun = state is not None and state.exists()
    given = {"context": context, **size, "careful": careful or None}
    rest = _check(state if begun else None, given, chunk)
    chat_model.check(model)
    text = None if context is None else chat_text.context(context)
    with standard_output(), told(), lock_state(state):
        if text is not None or begun:
            click.echo(f"loading {model}", err=True)
        talk = _begin(model, state if begun else None, size, careful)
        if state is not None and not begun:
            since = " from the first answer on" if text is None else ""
            click.echo(f"a new talk begins; it will be kept in {state}{since}", err=True)
        if begun:
            click.echo(f"the talk goes on: {status(talk)}", err=True)
        warned = False
        with _stopped(state, talk):
            if text is not None:
                size_of = chunk or rest.get("chunk", CHUNK)
                warned = chat_turns.read(talk, text, size_of, state)
            warned = warned or chat_turns.outgrown(talk, talk.cache.get_seq_length())
            for question in chat_text.questions():
                killed = chat_turns.answer(talk, question, tokens)
                if state is not None:
                    talk.cache.save(state)
                if killed:
                    sys.exit(killed)
                warned = warned or chat_turns.outgrown(talk, talk.cache.get_seq_length())
    click.echo(status(talk), err=True)


@contextmanager
def _stopped(state: Path | None, talk: Talk) -> Iterator[None]:
    """When the user stops it, say what is left."""
    try:
        yield
    except KeyboardInterrupt:
        there = state is not None and state.exists()
        left = f"{state} holds the talk up to its last answer" if there else "nothing was kept"
        if there and not talk.asked:
            left = f"{state} holds the context as far as it was saved"
        click.echo(f"\nstopped; {left}", err=True)
        raise


@contextmanager
def told() -> Iterator[None]:
    """Say in a line what is wrong with a model or a file, and what to do about it in a shell."""
    from ..snapshot import SnapshotError

    with warnings.catch_warnings():
        warnings.showwarning = _warn
        try:
            yield
        except (SnapshotError, ValueError, TypeError, ArithmeticError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise click.ClickException(_in_a_shell(str(error))) from error


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    # Not click.echo: it would write into a bar, rich puts this above it.
    if sys.stderr is not None:
        sys.stderr.write(f"warning: {_in_a_shell(str(message))}\n")


def _in_a_shell(said: str) -> str:
    for python, shell in SPELLING.items():
        said = said.replace(python, shell)
    return re.sub(r"\b(threshold|kept|budget)=", r"--\1 ", said)


def _check(begun: Path | None, given: dict[str, Any], chunk: int | None) -> dict[str, Any]:
    """Refuse a state that is no talk, and what a talk that was begun has already.

    What the talk says of a context that it has not read to its end, if there is one.
    """
    ways = [f"--{name}" for name in ("threshold", "kept", "budget") if given[name] is not None]
    if len(ways) > 1:
        raise click.UsageError(f"a cache is sized in one way, got {' and '.join(ways)}; choose one")
    if begun is None:
        return {}
    _check_state(begun)
    rest = _unread(begun)
    if rest and given["context"] is None:
        raise click.UsageError(
            f"{begun} holds a talk whose context ({rest['tokens']:,} tokens) was not read to its "
            "end; name it with --context to read the rest, or name another --state to begin anew"
        )
    if rest and chunk not in (None, rest["chunk"]):
        raise click.BadParameter(
            f"{begun} was read in chunks of {rest['chunk']}, got {chunk}; leave --chunk out to go "
            "on as if nothing had been",
            param_hint="--chunk",
        )
    for name, value in given.items():
        if value is not None and not (rest and name == "context"):
            raise click.BadParameter(
                f"{begun} holds a conversation that was begun; leave --{name} out to go on with "
                "it, or name another file to begin anew",
                param_hint=f"--{name}",
            )
    return rest


def _unread(state: Path) -> dict[str, Any]:
    """What a talk says of a context that was not read to its end, before any model is there."""
    from safetensors import safe_open

    with safe_open(state, framework="np") as file:
        told = json.loads(file.metadata()["distinctkv"])["state"]
    found: dict[str, Any] = told.get("notes", {}).get("reading", {})
    return found


def _check_state(path: Path) -> None:
    from ..snapshot import SnapshotError

    try:
        kind = f"it holds a {read_kind(path)[0]}"
    except SnapshotError:
        kind = "it is another kind of file, or damaged"
    if kind != f"it holds a {TALK}":
        raise click.ClickException(f"{path} is no saved talk: {kind}; name another --state")


def _begin(folder: Path, state: Path | None, size: dict[str, Any], careful: bool) -> Talk:
    try:
        from ..hf import CAREFUL, DistinctCache, distinct_cache
        from ..hf.plan import Plan
        from ..hf.talk import Talk
    except ImportError as error:
        raise click.ClickException(f"chat needs more: {install('hf')}") from error
    try:
        Plan(**size)  # a wrong size is told before a model is loaded
    except ValueError as error:
        raise ValueError(f"--{error}") from error
    model, tokenizer = chat_model.load(folder)
    if state is not None:
        return Talk(model, tokenizer, DistinctCache.load(state, model))
    care = CAREFUL if careful else None
    return Talk(model, tokenizer, distinct_cache(model, **size, care=care))
