"""``distinctkv merge``: snapshots of parts as one of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import kinds
from .info import FILE
from .io import STATE, file_errors, lock_state


@click.command("merge", short_help="Merge snapshots of one kind.")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=STATE,
    required=True,
    metavar="PATH",
    help="The merged snapshot; not one that a run is using.",
)
def command(files: tuple[Path, ...], output: Path) -> None:
    """Merge snapshots of one kind, as if their streams had followed each other.

    Caches, log parsers, de-duplicators and novelty detectors can be merged.
    Files are taken in the order given. The result does not say how far files were read, nor what
    was written: used as a --state it reads every file from its start, and needs a new output.
    """
    if len(files) < 2:
        raise click.UsageError(f"name two files or more to merge, got {len(files)}")
    if not output.parent.is_dir():
        raise click.BadParameter(f"there is no folder {output.parent}", param_hint="--output")
    lockable = output.is_file() or not output.exists()  # saving refuses what else there is
    with file_errors(), lock_state(output if lockable else None):
        kind = _one_kind(files)
        whole = kinds.load(files[0], kind)
        for file in files[1:]:
            part = kinds.load(file, kind)
            _check_setting(whole, part, files[0], file)
            _absorb(whole, part, file)
        _forget_places(whole)
        try:
            whole.save(output)
        except OSError as error:
            raise click.ClickException(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"{output}: {whole!r}", err=True)


def _one_kind(files: tuple[Path, ...]) -> str:
    found = {file: kinds.kind_of(file)[0] for file in files}
    first = found[files[0]]
    for file, kind in found.items():
        if kind != first:
            raise click.ClickException(
                f"{files[0]} holds a {first}, {file} a {kind}; merge files of one kind"
            )
    if first not in kinds.MERGED:
        raise click.ClickException(f"a {first} cannot be merged; {', '.join(kinds.MERGED)} can")
    return first


def _check_setting(whole: Any, part: Any, first: Path, file: Path) -> None:  # noqa: ANN401
    """Refuse parts that would not have dropped, or merged, the same things."""
    (name, ours), (_, theirs) = kinds.threshold(whole), kinds.threshold(part)
    if ours != theirs:
        raise click.ClickException(
            f"{first} was made with {name} {ours:g}, {file} with {name} {theirs:g}; "
            f"merge files of one {name}"
        )


def _absorb(whole: Any, part: Any, file: Path) -> None:  # noqa: ANN401
    try:
        whole.absorb(part)
    except ValueError as error:
        raise click.ClickException(f"{file} does not fit the files before it: {error}") from error


def _forget_places(whole: Any) -> None:  # noqa: ANN401
    """Drop how far the files of the first part were read."""
    if hasattr(whole, "note"):
        for name in ("distinctkv parse", "distinctkv dedup"):
            whole.note.pop(name, None)
