"""``python -m reproduction``: run the studies, print their tables, write the report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from distinctkv.cli.io import progress, standard_output
from distinctkv.extras import install

from . import studies
from .data import DataDamaged
from .result import Result
from .studies import runner
from .studies.smoke import N_SEEDS

FOLDER = click.Path(file_okay=False, writable=True, path_type=Path)
FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def _named(context: click.Context, option: click.Parameter, only: tuple[str, ...]) -> list[str]:
    """The studies to run, in the order given; all of them by default."""
    names = [name.strip() for given in only for name in given.split(",") if name.strip()]
    known = ", ".join(studies.NAMES)
    unknown = [name for name in names if name not in studies.NAMES]
    if unknown:
        raise click.BadParameter(f"there is no study {unknown[0]!r}; there are {known}")
    if only and not names:
        raise click.BadParameter(f"names no study; there are {known}")
    return list(dict.fromkeys(names or studies.NAMES))


@click.command("reproduction")
@click.option(
    "--only",
    "names",
    metavar="NAME[,NAME]",
    multiple=True,
    callback=_named,
    help="Run these studies (repeatable).",
)
@click.option("--full/--quick", default=False, help="The paper's size, or a fifth of it (default).")
@click.option(
    "--smoke", "smoke_run", is_flag=True, help="Seconds, to see that it runs; judges no claim."
)
@click.option("--out", type=FOLDER, default=Path("out"), show_default=True, metavar="DIR")
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="At most so many; long studies use fewer, most of all in a quick run, and say so.",
)
@click.option("--list", "listing", is_flag=True, help="List the studies and stop.")
@click.option("--again", is_flag=True, help="Run studies again whose results are in the folder.")
@click.option(
    "--figure", type=FILE, metavar="PATH", help="Also write the picture of study recall as SVG."
)
@standard_output()
def command(
    names: list[str],
    full: bool,
    smoke_run: bool,
    out: Path,
    seeds: int,
    listing: bool,
    again: bool,
    figure: Path | None,
) -> None:
    """Measure the paper's tables again, and say which of its claims hold.

    Prints a table per study and writes DIR/STUDY.json and DIR/report.html; with --full into
    DIR/full. A study is not run again if its result is there, from the same code and settings.
    Every claim holds, differs or is inconclusive, with its tolerance and margin beside it; a study
    with inconclusive claims runs again with up to ten seeds. Exit status 1 if a claim differs and
    claims.toml does not explain why.

    Studies of real streams use those on this machine and download none (python -m
    reproduction.data). Claims on missing data are listed as not measured; they do not change the
    exit status.
    """
    if listing:
        for name in studies.NAMES:
            click.echo(f"{name:{max(map(len, studies.NAMES))}} {studies.load(name).TITLE}")
        return
    folder = out / "smoke" if smoke_run else out / "full" if full else out
    if figure and not (figure.resolve().parent == folder.resolve() or figure.parent.is_dir()):
        raise click.BadParameter(f"there is no folder {figure.parent}", param_hint="--figure")
    require_report()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot write there: {error}", param_hint="--out") from error
    scale = runner.SMOKE if smoke_run else runner.FULL if full else runner.QUICK
    seeds = N_SEEDS if smoke_run else seeds
    finished, stopped = _measure(names, range(seeds), scale, folder, again)
    results = [result for result in runner.read_results(folder) if result.study in finished]
    if results:
        try:
            _publish(results, folder, figure)
        except OSError as error:
            raise click.ClickException(f"the report: {error}") from error
        _note_on_seeds(results, seeds, full)
    if stopped:
        done = ", ".join(finished) or "none"
        click.echo(f"stopped; finished: {done}. Without --again the rest goes on from there.")
        sys.exit(130)
    sys.exit(1 if any(claim.unexplained for one in results for claim in one.claims) else 0)


def require_report() -> None:
    """Fail before minutes of work if a study cannot be run or the report cannot be made."""
    needed_by_all = ("jinja2", "matplotlib", "torch", "sklearn", "platformdirs", "pooch")
    missing = [name for name in needed_by_all if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise click.ClickException(f"the reproduction needs {needed}; {install('reproduction')}")


def _measure(
    names: Sequence[str], seeds: range, scale: runner.Scale, folder: Path, again: bool
) -> tuple[list[str], bool]:
    """Run what is not in the folder and print each table; the studies done, and if interrupted."""
    from .report.console import tables

    screen = Console(highlight=False)
    finished: list[str] = []
    try:
        for name in names:
            if not again and runner.find_result(name, seeds, scale, folder):
                click.echo(f"{name}: found in {folder}, not run again (--again does)")
            else:
                screen.print(tables(_run(name, seeds, scale, folder)))
            finished.append(name)
    except KeyboardInterrupt:
        click.echo()
        return finished, True
    return finished, False


def _run(name: str, seeds: range, scale: runner.Scale, folder: Path) -> Result:
    try:
        with progress(name) as update:
            return runner.run_study(name, seeds, scale, folder, update)
    except (DataDamaged, OSError) as error:
        raise click.ClickException(f"{name}: {error}") from error


def _publish(results: Sequence[Result], folder: Path, figure: Path | None) -> None:
    """Write the report, say where it is, and name the claims whose difference is unexplained."""
    from .report import figures, page, text

    # The page shows every study in the folder, not only those asked for now.
    page.write(runner.read_results(folder), folder / "report.html")
    for claim in (claim for result in results for claim in result.claims):
        if claim.unexplained:
            measured = f"{claim.measured:.4g} ± {text.quantity(claim.margin)}"
            click.echo(
                f"≠ {claim.id} differs: paper {text.claimed(claim)}, measured {measured}, "
                f"tolerance {text.quantity(claim.tolerance)}"
            )
    click.echo("\n".join([*text.tally_lines(results), f"Report: {folder / 'report.html'}"]))
    if figure:
        drawn = figures.write_story(results, figure)
        click.echo(f"Figure: {figure}" if drawn else "No figure: it is made of study recall")


def _note_on_seeds(results: Sequence[Result], seeds: int, full: bool) -> None:
    """Name the studies that used fewer seeds than were asked for."""
    from .report.text import seeds_behind

    fewer = [
        f"{result.study} {seeds_behind(result.rows).removesuffix(' seeds')}"
        for result in results
        if any(one.n < seeds for row in result.rows for one in row.measures.values())
    ]
    if fewer:
        more = "" if full else "; --full uses more"
        click.echo(f"Fewer than {seeds} seeds, for their length: {', '.join(fewer)}{more}")


if __name__ == "__main__":
    command(prog_name="python -m reproduction")
