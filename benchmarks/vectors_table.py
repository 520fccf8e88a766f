"""The table of `benchmarks.vectors`, and which of its figures were reached."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import indexes
from .common import CHUNK, short, table, verdict

# What must hold in every cell, and on average over the cells.
EACH = {"naive": 6.0, "chunked": 1.7, "index": 4.0}
MEAN = {"naive": 10.0, "chunked": 2.5}

WALL, CPU = "tokens_per_s", "tokens_per_cpu_s"

NOTES = """\
Best of up to 7, in turns, until 3 s are spent; the slowest took up to {spread:.2f} times as long.
Ratios: by the wall clock (by CPU time); a figure is met if both say so.
~  estimated from samples along the stream
>  cut after {seconds:g} s: its rate is of the early, lighter part of the stream, so flattered
Ours includes checks, normalisation, usage and counters; the others get rows of length one and keep
keys alone.
sgemm: products we make, over all our CPU time, as a share of the sgemm rate (effective: counting
the products of a plain scan of all slots, most of which we need not make).
"""

Measured = dict[str, Any]


def ratios(cell: Measured, clock: str = WALL) -> dict[str, float]:
    """How many times faster than the naive loop, plain chunked products, and the best index."""
    ours = cell["ours"][clock]
    found = {name: ours / cell[name][clock] for name in ("naive", "chunked")}
    if cell["indexes"]:
        found["index"] = ours / max(index[clock] for index in cell["indexes"].values())
    return found


def report(cells: list[Measured], seconds: float) -> None:
    """Print the table, the means, and which figures were reached."""
    print(f"\ntokens/s by the wall clock (chunks of {CHUNK})")
    names = list(indexes.available())
    versus = ["/naive", "/chunked", "/best index"]
    head = ["D", "K", "N", "slots", "/item", "recall", "ours", "naive", "chunked", *names, *versus]
    table([*head, "sgemm"], [_line(cell, names) for cell in cells])
    runs = [run for cell in cells for run in (cell["ours"], cell["naive"], cell["chunked"])]
    spread = max((run["spread"] for run in runs if run.get("repeats", 1) > 1), default=1.0)
    print(NOTES.format(spread=spread, seconds=seconds))
    walls, cpus = [ratios(cell) for cell in cells], [ratios(cell, CPU) for cell in cells]
    for name, least in EACH.items():
        wall, cpu = ([each[name] for each in some if name in each] for some in (walls, cpus))
        if wall:
            what = f"at least {least:g}x {name} in every cell: {min(wall):.2f} ({min(cpu):.2f})"
            verdict(what, min(wall + cpu) >= least)
    for name, least in MEAN.items():
        wall, cpu = ([each[name] for each in some] for some in (walls, cpus))
        means = f"{np.mean(wall):.2f} ({np.mean(cpu):.2f})"
        what = f"{least:g}x {name} on average: {means}, geometric mean {_geometric(wall):.2f}"
        verdict(what, bool(min(np.mean(wall), np.mean(cpu)) >= least))


def _geometric(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def _line(cell: Measured, names: list[str]) -> list[str]:
    def speed(one: Measured | None) -> str:
        if one is None:
            return "-"
        mark = ">" if one.get("cut") else "" if one.get("full", True) else "~"
        return mark + short(one[WALL])

    wall, cpu = ratios(cell), ratios(cell, CPU)
    return [
        *(str(cell["D"]), short(cell["K"]), short(cell["N"]), short(cell["slots"])),
        *(f"{cell['slots_per_item']:.3f}", f"{cell['recall']:.3f}"),
        *(speed(cell[name]) for name in ("ours", "naive", "chunked")),
        *(speed(cell["indexes"].get(name)) for name in names),
        *(f"{wall[name]:.2f} ({cpu[name]:.2f})" if name in wall else "-" for name in EACH),
        f"{cell['share_of_sgemm']:.0%} ({cell['effective_share_of_sgemm']:.0%})",
    ]
