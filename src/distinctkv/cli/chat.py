"""``distinctkv chat``: ask a language model about a long file through a `DistinctCache`."""

from __future__ import annotations

import io
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..extras import install
from .io import STATE, Stop, file_errors, lock_state, progress, standard_output
from .snapshots import TALK, read_kind

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from ..hf import DistinctCache

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
CHUNK = 512  # tokens of a forward pass
MAX_INVALID = 0.1  # share of the characters of a text file that may be invalid UTF-8
INVALID = "\ufffd"  # replaces bytes that are not UTF-8


@click.command("chat")
@click.option("--model", type=FOLDER, metavar="PATH", required=True, help="Folder of the model.")
@click.option("--threshold", type=float, help="Novelty that opens a slot; the default is 1.4.")
@click.option("--kept", type=float, help="Instead: the share of tokens to keep.")
@click.option("--budget", type=int, help="Instead: the number of tokens to keep for each head.")
@click.option(
    "--fast",
    is_flag=True,
    help="Do not measure attention: reads faster, and answers are worse.",
)
@click.option("--context", type=FILE, metavar="FILE", help="A text file, compressed or not.")
@click.option("--state", type=STATE, metavar="PATH", help="Save the conversation here, resume it.")
@click.option(
    "--tokens", type=click.IntRange(1), default=256, show_default=True, help="Tokens of an answer."
)
@click.option(
    "--chunk", type=click.IntRange(1), default=CHUNK, show_default=True, help="Tokens read at once."
)
def command(
    model: Path,
    threshold: float | None,
    kept: float | None,
    budget: int | None,
    fast: bool,
    context: Path | None,
    state: Path | None,
    tokens: int,
    chunk: int,
) -> None:
    """Ask a language model about a file of any length.

    The file is read in chunks into a cache that merges repeated content. On a terminal, an empty
    line or the end of input ends the conversation. In a pipe, each line is a question and each
    answer is one line; empty lines are skipped.

    With --state the conversation is saved after the file and after each answer. The same command
    resumes it, and continues a file that was read in part. --threshold, --kept and --budget are set
    when a conversation begins.

    A model answers unreliably beyond the length that it was trained for; a warning says so.

    Ctrl-C stops reading after the current chunk, and saves; during an answer on a terminal it
    stops the answer. A second Ctrl-C ends the command at once.
    """
    sizes = {"threshold": threshold, "kept": kept, "budget": budget}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    if len(sizes) > 1:
        names = " and ".join(f"--{name}" for name in sizes)
        raise click.UsageError(f"give one size of the cache, got {names}")
    with standard_output(), file_errors(), lock_state(state):
        resumed = state is not None and state.exists()
        if state is not None and resumed:
            _check_state(state, [*sizes, *(["fast"] if fast else [])])
        text = None if context is None else read_text(context)
        with library_errors():
            conversation = load(model, state if resumed else None, sizes, fast)
            with saved_state(state):
                if text is not None:
                    read_context(conversation, text, chunk, state)
                conversation.check_context()
                answer_all(conversation, tokens, state)
            click.echo(conversation.status(), err=True)


def _check_state(state: Path, fixed: list[str]) -> None:
    """Raise before the model is loaded if the state cannot be resumed with these options."""
    kind, _ = read_kind(state)
    if kind != TALK:
        raise click.ClickException(f"{state} is a snapshot of a {kind}; name another --state")
    if fixed:
        raise click.UsageError(
            f"{state} holds a conversation with a size of its own; leave --{fixed[0]} out, or name "
            "another --state"
        )


@contextmanager
def library_errors() -> Iterator[None]:
    """Report errors and warnings of torch, transformers and `distinctkv.hf` without a traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _warn(str(message))
        try:
            yield
        except (ValueError, TypeError, ArithmeticError) as error:
            raise click.ClickException(str(error)) from error


@contextmanager
def saved_state(state: Path | None) -> Iterator[None]:
    """When the user interrupts, say what the state holds."""
    try:
        yield
    except KeyboardInterrupt:
        saved = state is not None and state.exists()
        click.echo(f"\nstopped; {f'resume with {state}' if saved else 'nothing saved'}", err=True)
        raise


def read_text(path: Path) -> str:
    """The text of a file, decompressed; invalid UTF-8 is replaced, with a warning."""
    from ..compression import SourceError, open_compressed

    try:
        with open_compressed(path) as file:
            text = file.readall().decode("utf-8", "replace").replace("\0", INVALID)
    except (SourceError, EOFError, ImportError, OSError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from error
    n_invalid = text.count(INVALID)
    if not text.strip():
        raise click.BadParameter(f"{path} has no text", param_hint="--context")
    if n_invalid > MAX_INVALID * len(text):
        raise click.BadParameter(
            f"{path} is not UTF-8 text ({n_invalid:,} of {len(text):,} characters are invalid)",
            param_hint="--context",
        )
    if n_invalid:
        _warn(f"{path}: {n_invalid:,} invalid characters were replaced by {INVALID}")
    return text


def load(folder: Path, state: Path | None, sizes: dict[str, Any], fast: bool) -> Conversation:
    """The model of a folder with a new cache, or with the cache of a state."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        from ..hf import FAST, DistinctCache, distinct_cache
    except ImportError as error:
        raise click.ClickException(f"chat needs {error.name}; {install('hf')}") from error
    click.echo(f"loading {folder}", err=True)
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        # Safetensors only: pickled weights run code when they are loaded.
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype="auto", use_safetensors=True
        )
    except Exception as error:  # each library raises types of its own for a damaged file
        raise click.ClickException(f"cannot load the model in {folder}: {error}") from error
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    if state is not None:
        return Conversation(model, tokenizer, DistinctCache.load(state, model))
    cache = distinct_cache(model, **sizes, merge=FAST if fast else None)
    return Conversation(model, tokenizer, cache)


class Conversation:
    """A model, its tokenizer, and the cache that all tokens go through.

    What else a resumed conversation needs is in ``cache.notes``, which is saved with the cache:
    ``context`` (digest, tokens, chunk, tokens read) and ``asked`` (whether there was a question).
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, cache: DistinctCache) -> None:  # noqa: ANN401
        self.model, self.tokenizer, self.cache = model, tokenizer, cache
        self.template = chat_template(tokenizer)
        self._logits: Tensor | None = None  # of the newest token
        ends = getattr(model.generation_config, "eos_token_id", None)
        ends = ends if isinstance(ends, list) else [ends]
        self._ends = {*ends, tokenizer.eos_token_id} - {None}

    def read(self, text: str, chunk: int) -> Iterator[tuple[int, int]]:
        """Read a context before the first question; yields tokens read and tokens in all.

        A context that the cache holds in part is continued in the same chunks: the slots are those
        of an uninterrupted run.
        """
        notes, digest = self.cache.notes, sha256(text.encode("utf-8", "replace")).hexdigest()
        found = notes.get("context", {"digest": digest})
        if found["digest"] != digest or ("context" not in notes and self.cache.get_seq_length()):
            raise ValueError("the state holds a conversation about another context")
        if found.get("read", 0) == found.get("tokens"):
            return
        ids = self._tokenize(self.template[0] + text + "\n\n", first=True)
        context = {"digest": digest, "tokens": ids.shape[1], "chunk": chunk, "read": 0} | found
        yield context["read"], context["tokens"]
        for start in range(context["read"], context["tokens"], context["chunk"]):
            part = ids[:, start : start + context["chunk"]]
            self._forward(part)
            context["read"] = start + part.shape[1]
            notes["context"] = context
            yield context["read"], context["tokens"]

    def check_context(self) -> None:
        """Raise if a context was read in part only."""
        context = self.cache.notes.get("context", {"read": 0, "tokens": 0})
        if context["read"] < context["tokens"]:
            raise ValueError(
                f"the state holds {context['read']:,} of {context['tokens']:,} tokens of a "
                "context; give --context again to read the rest"
            )

    def ask(self, question: str, max_tokens: int) -> Generator[str, None, None]:
        """The answer by greedy decoding, in pieces of text."""
        from ..hf import captured

        begin, end, later_begin, later_end = self.template
        first = self.cache.get_seq_length() == 0
        if self.cache.notes.get("asked"):
            begin, end = later_begin, later_end
        elif not first:
            begin = ""  # stands before the context
        ids = self._tokenize(begin + question + end, first)
        for start in range(0, ids.shape[1], CHUNK):
            self._forward(ids[:, start : start + CHUNK])
        self.cache.notes["asked"] = True
        with captured(self.model):
            yield from self._decode(max_tokens)

    def _decode(self, max_tokens: int) -> Iterator[str]:
        tokens: list[int] = []
        shown = ""
        while len(tokens) < max_tokens:
            assert self._logits is not None
            next_token = self._logits.argmax().view(1, 1)
            if int(next_token) in self._ends:
                return
            tokens.append(int(next_token))
            self._forward(next_token)
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            # A character may need several tokens.
            if not text.endswith(INVALID) or len(tokens) == max_tokens:
                yield text[len(shown) :]
                shown = text

    def _tokenize(self, text: str, first: bool) -> Tensor:
        """Token ids (1, L); with special tokens at the start of a model without a template."""
        special = first and not self.template[0]
        ids = self.tokenizer(text, return_tensors="pt", add_special_tokens=special)["input_ids"]
        found: Tensor = ids.long().to(self.model.device)
        return found

    def _forward(self, ids: Tensor) -> None:
        import torch

        with torch.no_grad():
            out = self.model(ids, past_key_values=self.cache, logits_to_keep=1)
        self._logits = out.logits[0, -1]

    def status(self) -> str:
        """Tokens seen, slots held, bytes held and saved."""
        from rich.filesize import decimal

        held = self.cache.summary()
        saved = held.full - held.bytes
        than = "saved" if saved >= 0 else "more than a full cache"
        return (
            f"{held.tokens:,} tokens seen, {held.slots.mean() + held.window:,.0f} held per head "
            f"({held.kept:.0%}), {decimal(held.bytes)} held, {decimal(abs(saved))} {than}"
        )

    def warn_if_too_long(self, n_tokens: int) -> None:
        """Warn once if these are more tokens than the model was trained for."""
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest and n_tokens > longest and not self.cache.notes.get("too_long"):
            self.cache.notes["too_long"] = True
            _warn(
                f"{n_tokens:,} tokens are more than the model was made for ({longest:,}); "
                "answers are unreliable from there on"
            )


def chat_template(tokenizer: Any) -> tuple[str, str, str, str]:  # noqa: ANN401
    """Text before and after the first question, and before and after a later question."""
    if not getattr(tokenizer, "chat_template", None):
        return "", "\n", "\n", "\n"
    marks = ("first-question", "first-answer", "next-question")
    roles = ("user", "assistant", "user")
    messages = [{"role": r, "content": m} for r, m in zip(roles, marks, strict=True)]
    rest = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    parts = []
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found:
            raise ValueError(f"the chat template of the tokenizer changes the message {mark!r}")
        parts.append(before)
    return parts[0], parts[1], parts[2], rest


def read_context(conversation: Conversation, text: str, chunk: int, state: Path | None) -> None:
    """Read a context with a progress bar, and save it; a signal stops after a chunk."""
    with Stop() as stop, progress("reading") as update:
        for done, total in conversation.read(text, chunk):
            conversation.warn_if_too_long(total)
            update(done, total, conversation.status() if done else "")
            if stop():
                break
    if state is not None:
        conversation.cache.save(state)
    click.echo(conversation.status(), err=True)
    if stop():
        click.echo(f"stopped; {f'resume with {state}' if state else 'nothing saved'}", err=True)
        sys.exit(stop.status)


def answer_all(conversation: Conversation, max_tokens: int, state: Path | None) -> None:
    """Answer each question of standard input, and save after each answer."""
    for question in questions():
        with Stop() as stop, closing(conversation.ask(question, max_tokens)) as pieces:
            show(pieces, stop)
        conversation.warn_if_too_long(conversation.cache.get_seq_length())
        if state is not None:
            conversation.cache.save(state)
        if stop() and (stop.signal == signal.SIGTERM or not typed()):
            sys.exit(stop.status)


def show(pieces: Iterator[str], stop: Stop) -> None:
    """Print an answer: piece by piece on a terminal, as one line in a pipe."""
    interactive, parts = sys.stdout.isatty(), []
    for piece in pieces:
        parts.append(piece)
        if interactive:
            click.echo(piece, nl=False)
        if stop():
            break
    click.echo("" if interactive else " ".join("".join(parts).split()))
    sys.stdout.flush()


def typed() -> bool:
    """Whether questions come from a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def questions() -> Iterator[str]:
    """Lines of standard input; on a terminal an empty line ends them, in a pipe it is skipped."""
    if sys.stdin is None:
        raise click.ClickException("standard input is closed; questions are read from it")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    while True:
        if typed():
            click.echo("> ", err=True, nl=False)
        line = sys.stdin.readline()
        if line.strip():
            yield line.strip()
        elif typed() or not line:
            return


def _warn(message: str) -> None:
    click.echo(f"warning: {message}", err=True)
