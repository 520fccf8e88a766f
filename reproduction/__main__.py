"""``python -m reproduction``: run the studies, print their tables, write the report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import click
from rich.console import Console

from distinctkv.cli.io import standard_output
from distinctkv.extras import install

from . import studies
from .data import DataDamaged, DataMissing, movielens
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
    "--smoke",
    "smoke_run",
    is_flag=True,
    help="Run the studies at a tiny size, to see that they run; no claim is judged.",
)
@click.option("--out", type=FOLDER, default=Path("out"), show_default=True, metavar="DIR")
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=10,
    show_default=True,
    help="Use at most this many seeds; long studies use fewer, and say so.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=min(2, os.cpu_count() or 1),
    show_default="2, or 1 on a single core",
    help="How many studies run at a time.",
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
    jobs: int,
    listing: bool,
    again: bool,
    figure: Path | None,
) -> None:
    """Measure the paper's tables again, and say which of its claims hold.

    After each study its table is printed, and DIR/STUDY.json and DIR/report.html are written
    (with --full in DIR/full). A study whose result is there already, from the same code and
    settings, is not run again.

    Each claim holds, differs or is inconclusive; its tolerance and margin are shown. A study with
    inconclusive claims is run again with up to ten seeds. The exit status is 1 if a claim differs
    and claims.toml does not explain why.

    MovieLens is downloaded if it is missing (2 MB). The other real streams are used if they are on
    this machine; python -m reproduction.data shows which are. Claims on missing data are shown as
    not measured and do not change the exit status.
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
    _prepare_data(names)
    finished, stopped = _measure(names, range(seeds), scale, folder, again, jobs)
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


def _prepare_data(names: Sequence[str]) -> None:
    """Download MovieLens if a study needs it; say which other streams are missing."""
    readers: dict[str, list[str]] = {}
    for name in names:
        missing = runner.missing_data(*studies.STREAMS.get(name, ()))
        for stream in dict.fromkeys(one.partition("/")[0] for one in missing):  # loghub/BGL
            readers.setdefault(stream, []).append(name)
    if "movielens" in readers:
        try:
            click.echo(f"MovieLens is downloaded ({movielens.MOVIELENS.licence})", err=True)
            movielens.MOVIELENS.get()
            del readers["movielens"]
        except DataMissing as error:
            click.echo(str(error), err=True)
    for stream, waiting in readers.items():
        click.echo(
            f"{stream} is not on this machine: some claims of {', '.join(waiting)} will not be "
            f"measured. To get it: python -m reproduction.data get {stream}",
            err=True,
        )


def _measure(
    names: Sequence[str], seeds: range, scale: runner.Scale, folder: Path, again: bool, jobs: int
) -> tuple[list[str], bool]:
    """Run what is not in the folder and print each table; the studies done, and if interrupted."""
    finished = [
        name
        for name in names
        if not again and runner.find_result(name, seeds, scale, folder) is not None
    ]
    for name in finished:
        click.echo(f"{name}: found in {folder}, not run again (--again does)")
    waiting = [name for name in names if name not in finished]
    page, line = Page(folder), StatusLine(len(waiting))

    def report(step: runner.Step) -> None:
        if step.finished:
            line.clear()
            finished.append(step.finished)
            page.add(step.finished)
        line.show(step)

    try:
        runner.run_studies(waiting, seeds, scale, folder, min(jobs, len(waiting)), report)
    except KeyboardInterrupt:
        click.echo()
        return finished, True
    except (DataDamaged, OSError) as error:
        raise click.ClickException(str(error)) from error
    finally:
        line.clear()
    return finished, False


class StatusLine:
    """``study 3 of 16, about 2 minutes left``: one line that changes, or lines in a pipe."""

    def __init__(self, n_studies: int) -> None:
        self.n_studies = n_studies
        self._terminal = sys.stderr.isatty()
        self._said, self._at = -1, 0.0

    def show(self, step: runner.Step) -> None:
        """Say how far the run is; in a pipe after each study, and every half minute."""
        if step.n_done == self.n_studies:
            return
        text = f"study {step.n_done + 1} of {self.n_studies}, {in_words(step.seconds_left)} left"
        if self._terminal:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
        elif step.n_done > self._said or monotonic() > self._at + 30:
            click.echo(text, err=True)
            self._said, self._at = step.n_done, monotonic()

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._terminal:
            click.echo("\r\x1b[K", nl=False, err=True)


def in_words(seconds: float) -> str:
    """A time that is only estimated.

    >>> in_words(130), in_words(65), in_words(20)
    ('about 2 minutes', 'about 1 minute', 'less than a minute')
    """
    minutes = round(seconds / 60)
    if seconds < 60:
        return "less than a minute"
    return f"about {minutes} minute{'s' * (minutes > 1)}"


class Page:
    """The report while studies run. It is written at the first study, then now and then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._next = 0.0

    def add(self, name: str) -> None:
        """Print a study's table, and write the page unless it was just written."""
        from .report import page
        from .report.console import tables

        result = runner.read_result(name, self.folder)
        if result is None:
            raise click.ClickException(f"{name}: the code has changed while it ran; run it again")
        Console(highlight=False).print(tables(result))
        started = monotonic()
        if started >= self._next:
            page.write(runner.read_results(self.folder), self.folder / "report.html")
            # At most a tenth of the time goes into pages that will be written again.
            self._next = monotonic() + 10 * (monotonic() - started)


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
