"""``distinctkv data``: which real streams are here, and how to get the others."""

from __future__ import annotations

import click

from distinctkv.cli.io import standard_output

WIDE = 1000  # columns where there is no terminal, so that a path stays in one piece


@click.group("data", invoke_without_command=True, short_help="List the real streams, fetch them.")
@click.pass_context
def command(context: click.Context) -> None:
    """List the real streams: whether they are here, where, rows, licence.

    They are looked for in the folder that DISTINCTKV_DATA names, then in the cache:
    DISTINCTKV_CACHE, or distinctkv in your cache folder.
    """
    if context.invoked_subcommand:
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from . import catalogue, places

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("stream", "here", "rows", "licence"):
        table.add_column(name, overflow="fold")
    for entry in catalogue.entries():
        absent = f"no; distinctkv data get {entry.name}"
        rows = f"{entry.n_rows:,}" if entry.n_rows else "-"
        here = f"{entry.where}\n{entry.note}".strip() if entry.where else absent
        table.add_row(*(Text(cell) for cell in (entry.name, here, rows, entry.licence)))
    with standard_output():
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else WIDE
        console.print(table)
    for folder in places.folders()[:-1]:
        if not folder.is_dir():
            click.echo(f"DISTINCTKV_DATA names {folder}, and there is no such folder", err=True)


@command.command()
@click.argument("name")
def get(name: str) -> None:
    """Fetch a stream into the cache, unless it is here.

    NAME is movielens, loghub (all systems, or one: loghub/HDFS), mimic or synpuf.
    """
    from . import DataMissing, catalogue

    try:
        for part in catalogue.members(name):
            paths = part.get()
            click.echo(f"{part.name}: {', '.join(map(str, paths.values()))}")
    except DataMissing as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    click.echo(f"Licence: {part.licence}")
