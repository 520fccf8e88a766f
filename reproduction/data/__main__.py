"""``python -m reproduction.data``: list the real streams on this machine, download the others."""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
from pathlib import Path

import click

from . import NAMES, SINGLE, DataDamaged, DataMissing, DataSet, data_sets, loghub
from .download import folders


@click.group("data", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the real streams: on this machine or not, rows, folder, licence.

    They are searched in the folder that DISTINCTKV_DATA names, then in the cache:
    DISTINCTKV_CACHE, or distinctkv in your cache folder.
    """
    if context.invoked_subcommand:
        return
    for folder in folders()[:-1]:
        if not folder.is_dir():
            click.echo(f"DISTINCTKV_DATA names {folder}, and there is no such folder", err=True)
    for name in NAMES:
        if name in SINGLE:
            present, licence = [SINGLE[name]] if SINGLE[name].find() else [], SINGLE[name].licence
        else:
            present = [loghub.original(system) for system in loghub.present()]
            licence = loghub.LICENCE
        click.echo(f"{name:<10} {describe(name, present)}")
        click.echo(f"{'':<10} licence: {licence}")


def describe(name: str, present: Sequence[DataSet[Sized]]) -> str:
    """Rows and folder of the sets that are on this machine; all are read, so damage shows."""
    if not present:
        return f"absent; get it: python -m reproduction.data get {name}"
    paths = [path.parent for one in present for path in (one.find() or {}).values()]
    where = Path(os.path.commonpath(paths))
    try:
        rows = f"{sum(len(one.load()) for one in present):,} rows"
    except DataDamaged as error:
        rows = f"damaged: {error}"
    systems = f", {len(present)} of {len(loghub.SYSTEMS)} systems" if name == "loghub" else ""
    return f"{rows}{systems}  {where}"


@command.command()
@click.argument("name")
def get(name: str) -> None:
    """Download a stream into the cache, unless it is on this machine.

    NAME is movielens, loghub (all systems, or one: loghub/HDFS), mimic or synpuf.
    """
    try:
        for part in data_sets(name):
            click.echo(f"{part.name}: {', '.join(map(str, part.get().values()))}")
    except DataMissing as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from error
    click.echo(f"Licence: {part.licence}")


if __name__ == "__main__":
    command(prog_name="python -m reproduction.data")
