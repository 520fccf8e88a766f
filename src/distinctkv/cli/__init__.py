"""The command line. Only click is imported here; a command imports what it needs."""

from __future__ import annotations

import os

import click

from .. import __version__
from . import chat, dedup, diff, digest, mcp, parse, snapshots, watch

# Products here are small: more threads of BLAS wait for each other, most of all on busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="distinctkv")
def main() -> None:
    """A key-value memory that keeps distinct items, not tokens."""


for part in (
    parse.command,
    watch.command,
    digest.command,
    diff.command,
    mcp.command,
    dedup.command,
    snapshots.info,
    snapshots.merge,
    chat.command,
):
    main.add_command(part)
