"""``python -m reproduction.studies.scan``: the settings that were tried for a baseline.

On the recall stream, with a query for every item; each line has a setting, recall and slots. Seeds
are other than those of the studies. The setting in use comes first: of those with about the best
recall the one with the fewest slots, and for a memory of fixed size one that diverges nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import click

from ..baselines import (
    H2O,
    HAM,
    KVM,
    NEC,
    OVQ,
    Based,
    Delta,
    Fourier,
    GatedDelta,
    InfFormer,
    Kanerva,
    Ridge,
    Titans,
)
from ..data import RecallTask
from .sweep import Method, compare, every_item

SEEDS = range(1000, 1004)
EPISODES = 5
# Baseline -> class with the settings that stay, and the values tried; the first are those in use.
Grid = Mapping[str, tuple[float, ...]]
SCANS: Mapping[str, tuple[Callable[..., object], Grid]] = {
    "h2o": (
        partial(H2O, 64),
        {"score_theta": (0.1, 0.02, 0.05, 0.145, 0.2, 0.5), "recent": (0, 32)},
    ),
    "nec": (partial(NEC, 64), {"k": (1, 4, 10, 50)}),
    "ham": (
        HAM,
        {
            "error": (0.98, 0.25, 0.5, 0.9, 1.02, 1.1),
            "rate": (0.05, 0.1, 0.5),
            "near": (0.8, 0.3, 0.6, 0.9),
        },
    ),
    "kvm": (KVM, {"factor": (5.5, 2, 4, 8, 16), "chunk": (16, 4, 32, 64)}),
    "ovq": (OVQ, {"limit": (128, 64, 96, 154, 256), "chunk": (16, 4, 32, 64)}),
    "delta": (Delta, {"rate": (0.1, 0.02, 0.05, 0.2, 0.5)}),
    "gated": (GatedDelta, {"rate": (0.1, 0.05, 0.2), "decay": (0.999, 0.99, 0.995, 1.0)}),
    "ridge": (Ridge, {"penalty": (0.1, 0.01, 1.0, 10.0)}),
    "fourier": (partial(Fourier, 96), {"scale": (2.5, 1.0, 2.0, 3.0, 4.0)}),
    "based": (Based, {"width": (16, 8, 12, 24)}),
    "kanerva": (partial(Kanerva, 36), {"noise": (0.1, 0.01, 0.3, 1.0)}),
    "infformer": (InfFormer, {"n_waves": (64, 16, 32, 128)}),
    "titans": (
        Titans,
        {
            "hidden": (128, 64),
            "step": (1.0, 0.5, 1.5, 2.0),
            "momentum": (0.5, 0.0, 0.7, 0.9),
        },
    ),
}


def methods(name: str) -> Iterator[Method]:
    """A method for each setting of a baseline."""
    make, grid = SCANS[name]
    for values in product(*grid.values()):
        given = dict(zip(grid, values, strict=True))
        text = ", ".join(f"{setting} {value:g}" for setting, value in given.items())
        yield Method(text, name, text, partial(make, **given))


def lines(name: str, episodes: int = EPISODES) -> Iterator[str]:
    """A line for each setting, the one in use first; settings that diverge say so."""
    for place, method in enumerate(methods(name)):
        try:
            curve = compare([method], every_item(RecallTask()), SEEDS, episodes)[method.name]
            found = f"recall {curve.mean('recall'):.3f}  slots {curve.mean('slots'):6.1f}"
        except ValueError as error:
            found = f"fails: {str(error).partition(';')[0]}"
        yield f"{name:<10} {method.setting:<40} {found}{'  in use' * (place == 0)}"


@click.command("scan")
@click.argument("names", nargs=-1, type=click.Choice([*SCANS]))
def command(names: tuple[str, ...]) -> None:
    """Measure the settings of the baselines with these NAMES, or of all: some minutes."""
    for name in names or SCANS:
        for line in lines(name):
            click.echo(line)


if __name__ == "__main__":
    command(prog_name="python -m reproduction.studies.scan")
