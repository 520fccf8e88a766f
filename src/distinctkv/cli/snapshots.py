"""``distinctkv info`` and ``distinctkv merge``: what a snapshot holds, and several as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from .io import STATE, file_errors, lock_state, standard_output, visible

PARSER = "log parser"
TALK = "language model cache"
MERGEABLE = ("cache", PARSER, "deduplicator", "novelty detector")
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@click.command("info", short_help="Show what a saved file holds.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--tensors", is_flag=True, help="List every tensor with its type and shape.")
def info(file: Path, as_json: bool, tensors: bool) -> None:
    """Show what a saved file holds: a cache, a log parser, a saved chat, ...

    The whole file is checked. A damaged file, or one of another program, is an error.
    """
    with file_errors():
        kind, version = read_kind(file)
        content = load(file, kind)
    facts: dict[str, Any] = {
        "file": str(file),
        "kind": kind,
        "version": version,
        "bytes": file.stat().st_size,
        "content": repr(content) if kind in MERGEABLE else _state(content[1]),
        "tensors": _tensors(file) if tensors else len(_tensors(file)),
    }
    with standard_output():
        if as_json:
            click.echo(json.dumps(facts, default=str))
            return
        for name, value in facts.items():
            if not isinstance(value, dict):
                click.echo(f"{name}: {visible(str(value))}")
                continue
            click.echo(f"{name}:")
            for label, one in value.items():
                click.echo(f"  {visible(f'{label}  {one}')}")


@click.command("merge", short_help="Merge saved files of one kind.")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=STATE,
    required=True,
    metavar="PATH",
    help="The merged file; not one that a run is using.",
)
def merge(files: tuple[Path, ...], output: Path) -> None:
    """Merge saved files of one kind, as if their streams had followed each other.

    Caches, log parsers, de-duplicators and novelty detectors can be merged, in the order given.
    The result does not know how far any log was read: a run that uses it as its --state reads
    from the start.
    """
    if len(files) < 2:
        raise click.UsageError(f"name two files or more to merge, got {len(files)}")
    if not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    lockable = output.is_file() or not output.exists()  # saving refuses anything else
    with file_errors(), lock_state(output if lockable else None):
        kind = _common_kind(files)
        whole = load(files[0], kind)
        for file in files[1:]:
            part = load(file, kind)
            if (ours := _threshold(whole)) != (theirs := _threshold(part)):
                raise click.ClickException(
                    f"{files[0]} was made with {ours}, {file} with {theirs}; they cannot be merged"
                )
            try:
                whole.absorb(part)
            except ValueError as error:
                raise click.ClickException(f"{file} cannot be merged: {error}") from error
        if kind == PARSER:
            from ..logs.job import NOTE

            whole.note.pop(NOTE, None)  # how far files were read
        try:
            whole.save(output)
        except OSError as error:
            raise click.ClickException(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"{output}: {whole!r}", err=True)


def read_kind(path: Path) -> tuple[str, str]:
    """Kind and format version from the header of a snapshot; the rest is not checked."""
    from safetensors import SafetensorError, safe_open

    from ..snapshot import SnapshotError

    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {})["distinctkv"])
            return str(header["kind"]), str(header["version"])
    except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
        raise SnapshotError(
            f"{path} is no snapshot of distinctkv: it is another kind of file, or damaged"
        ) from error


def load(path: Path, kind: str) -> Any:  # noqa: ANN401
    """The object of a snapshot, every byte checked; for other kinds, tensors and state."""
    if kind == "cache":
        from ..cache import Cache

        return Cache.load(path)
    if kind == PARSER:
        from ..logs import LogParser

        return LogParser.load(path)
    if kind == "deduplicator":
        from ..dedup import Deduplicator

        return Deduplicator.load(path)
    if kind == "novelty detector":
        from ..novelty import NoveltyDetector

        return NoveltyDetector.load(path)
    from .. import snapshot

    return snapshot.load(path, kind)


def _common_kind(files: tuple[Path, ...]) -> str:
    kinds = {file: read_kind(file)[0] for file in files}
    first = kinds[files[0]]
    for file, kind in kinds.items():
        if kind != first:
            raise click.ClickException(
                f"{files[0]} holds a {first}, {file} a {kind}; merge files of one kind"
            )
    if first not in MERGEABLE:
        raise click.ClickException(f"a {first} cannot be merged; {', '.join(MERGEABLE)} can")
    return first


def _threshold(content: Any) -> str:  # noqa: ANN401
    """The number that decides what is a repeat, and what a state of dedup compares."""
    if hasattr(content, "similarity"):
        from ..dedup.job import NOTE

        compared = getattr(content, "note", {}).get(NOTE, "")
        return f"similarity {content.similarity:g} {compared}".rstrip()
    return f"tau {content.concentration.tau:g}"


def _state(state: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{value:,}" if isinstance(value, int) else str(value)[:200]
        for name, value in sorted(state.items())
    }


def _tensors(path: Path) -> dict[str, str]:
    """Type and shape of every tensor, by name."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        slices = {name: file.get_slice(name) for name in sorted(file.keys())}
        return {name: f"{one.get_dtype()} {one.get_shape()}" for name, one in slices.items()}
