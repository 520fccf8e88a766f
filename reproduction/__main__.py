"""``distinctkv reproduce``: run the studies, print their tables, write the report."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distinctkv.cli.io import progress, standard_output
from distinctkv.extras import install

if TYPE_CHECKING:
    from .studies.result import Result
    from .studies.study import Scale

FOLDER = click.Path(file_okay=False, writable=True, path_type=Path)
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command("reproduce", short_help="Measure the paper's tables again.")
@click.option(
    "--only", metavar="NAME[,NAME]", multiple=True, help="Run these studies (repeatable)."
)
@click.option("--full/--quick", default=False, help="The paper's size, or a fifth of it (default).")
@click.option("--out", type=FOLDER, default=Path("out"), show_default=True, metavar="DIR")
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="At most so many; long studies use fewer, most of all in a quick run, and say so.",
)
@click.option("--list", "listing", is_flag=True, help="Name the studies and stop.")
@click.option("--again", is_flag=True, help="Run even what is already in the folder.")
@click.option(
    "--figure", type=FILE, metavar="PATH", help="Also write the first figure as an SVG file."
)
@standard_output()
def command(
    only: tuple[str, ...],
    full: bool,
    out: Path,
    seeds: int,
    listing: bool,
    again: bool,
    figure: Path | None,
) -> None:
    """Measure the paper's tables again, and say which of its claims hold.

    Prints a table per study and writes DIR/STUDY.json and DIR/report.html. Studies already
    there, from the same code and settings, are not run again. Exits with 0 unless a claim that we
    say holds does not, or one that we contest is neither the paper's number nor ours.

    Studies of real streams use those that are on this machine and fetch none (distinctkv data).
    Where one is absent its claims are told as not measured, and change no exit code.
    """
    from . import studies
    from .studies.study import FULL, QUICK

    if listing:
        width = max(12, *map(len, studies.NAMES))
        for name in studies.NAMES:
            click.echo(f"{name:{width}} {studies.load(name).TITLE}")
        return
    asked = [name.strip() for given in only for name in given.split(",") if name.strip()]
    unknown = [name for name in asked if name not in studies.NAMES]
    if unknown:
        raise click.BadParameter(
            f"there is no study {unknown[0]!r}; there are {', '.join(studies.NAMES)}",
            param_hint="--only",
        )
    if only and not asked:
        raise click.BadParameter(
            f"names no study; there are {', '.join(studies.NAMES)}", param_hint="--only"
        )
    if figure and not (figure.resolve().parent == out.resolve() or figure.parent.is_dir()):
        raise click.BadParameter(f"there is no folder {figure.parent}", param_hint="--figure")
    need_report()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot write there: {error}", param_hint="--out") from error
    names = tuple(dict.fromkeys(asked or studies.NAMES))
    results, stopped = _measure(names, range(seeds), FULL if full else QUICK, out, again)
    if results:
        try:
            _publish(results, out, figure)
        except OSError as error:
            raise click.ClickException(f"the report: {error}") from error
        _own_up(results, seeds, full)
    if stopped:
        done = ", ".join(result.study for result in results) or "none"
        click.echo(f"stopped; finished: {done}. Without --again the rest goes on from there.")
        sys.exit(130)
    sys.exit(0 if all(result.passes for result in results) else 1)


def need_report() -> None:
    """Refuse early, not after minutes of work, when the report cannot be made."""
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the report needs {' and '.join(missing)}; {install('report')}")


def _measure(
    names: tuple[str, ...], seeds: range, scale: Scale, out: Path, again: bool
) -> tuple[list[Result], bool]:
    """The results of the studies, found or made, each table printed; and whether Ctrl-C came."""
    from rich.console import Console

    from .report.console import tables
    from .studies import shelf

    screen = Console(highlight=False)
    results: list[Result] = []
    try:
        for name in names:
            found = None if again else shelf.find(name, seeds, scale, out)
            result = found or _run(name, seeds, scale, out)
            if found:
                click.echo(f"{name}: found in {out}, not run again (--again does)")
            else:
                screen.print(tables(result))
            results.append(result)
    except KeyboardInterrupt:
        click.echo()
        return results, True
    return results, False


def _run(name: str, seeds: range, scale: Scale, out: Path) -> Result:
    from .data import DataDamaged
    from .studies import shelf

    try:
        with progress(name) as update:
            return shelf.measure(name, seeds, scale, out, update)
    except (DataDamaged, OSError) as error:
        raise click.ClickException(f"{name}: {error}") from error


def _publish(results: list[Result], out: Path, figure: Path | None) -> None:
    """Write the report, say where it is, and name what fails."""
    from .report import figures, page, words
    from .studies import NAMES, shelf

    # The page shows every study in the folder, not only those asked for now.
    all_results = {**shelf.held(out), **{result.study: result for result in results}}
    page.write([all_results[name] for name in NAMES if name in all_results], out / "report.html")
    for result in results:
        for claim in result.claims:
            if not claim.passes:
                click.echo(
                    f"{claim.id} fails: paper {claim.paper}, measured {claim.measured:.4g}, "
                    f"allowed difference {claim.tolerance:.2g}"
                )
    click.echo(f"{words.tally(results)}. Report: {out / 'report.html'}")
    if figure:
        drawn = figures.write_story(results, figure)
        click.echo(f"Figure: {figure}" if drawn else "No figure: none of these studies has one")


def _own_up(results: list[Result], seeds: int, full: bool) -> None:
    """Name the studies that used fewer seeds than were asked for."""
    from .report.words import seeds_behind

    fewer = [
        f"{result.study} {seeds_behind(result).removesuffix(' seeds')}"
        for result in results
        if any(one.n < seeds for row in result.rows for one in row.measures.values())
    ]
    if fewer:
        more = "" if full else "; --full uses more"
        click.echo(f"Fewer than {seeds} seeds, for their length: {', '.join(fewer)}{more}")
