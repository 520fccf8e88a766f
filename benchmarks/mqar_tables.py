"""The tables of results/trained.json and results/kernels.json, from what GPU runs have kept.

``python -m benchmarks.mqar_tables FOLDER`` prints them as Markdown, from mqar.json and gpu.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

NAMES = {
    "mass": "slots, mass read",
    "first": "slots, distinct read",
    "gated": "slots and write gate",
    "kvm": "KVM-like, bytes of mass",
    "ovq": "OVQ-like, bytes of mass",
    "full": "full attention",
    "window": "window",
    "mamba2": "Mamba-2",
    "mamba2_wide": "Mamba-2, wide state",
    "delta": "Gated DeltaNet",
    "delta_wide": "Gated DeltaNet, wide state",
}
Run = Mapping[str, Any]


def main() -> None:
    """Print what there is."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if (file := folder / "mqar.json").exists():
        recalled(json.loads(file.read_text()))
    if (file := folder / "gpu.json").exists():
        timed(json.loads(file.read_text()))


def recalled(kept: Mapping[str, Any]) -> None:
    """Recall of every seed, bytes, slots an item, what else was asked, and last all of it in short.

    What the deadline cut short was asked as it was; it is named first, with its last step.
    """
    print(f"{kept['device']}, torch {kept['torch']}; {kept['size']}\n")
    for how in dict.fromkeys(run["how"] for run in kept["runs"]):
        runs = [run for run in kept["runs"] if run["how"] == how]
        for run in (run for run in runs if "found" not in run or run["cut"]):
            why = run.get("wrong", "step, seconds, loss").strip().splitlines()[-1]
            print(f"cut: {run['model']} {run['seed']}, {why} {run['curve'][-1:]}")
        whole = [run for run in runs if "found" in run]
        found = {name: of_model(whole, name) for name in NAMES}
        sizes({name: rows for name, rows in found.items() if rows}, how)


def of_model(runs: Iterable[Run], name: str) -> list[Run]:
    """The runs of a model, by seed."""
    return sorted((run for run in runs if run["model"] == name), key=lambda run: run["seed"])


def sizes(found: Mapping[str, Sequence[Run]], how: str) -> None:
    """All tables of one way to train."""
    if not found:
        return
    first = next(iter(found.values()))[0]["found"]
    head = [f"{one['items']:,} items, {one['tokens']:,} tokens" for one in first]

    def cells(rows: Sequence[Run], shown: Any) -> list[str]:  # noqa: ANN401
        return [shown([run["found"][place] for run in rows]) for place in range(len(head))]

    tables = {
        "recall": lambda seen: " ".join(part(one["recall"]) for one in seen),
        "KB": lambda seen: f"{fmean(one['bytes'] for one in seen) / 1024:,.0f}",
        "slots an item": lambda seen: f"{fmean(one['slots'] / one['items'] for one in seen):.2f}",
    }
    for name, shown in tables.items():
        rows = [[NAMES[model], *cells(runs, shown)] for model, runs in found.items()]
        markdown([f"{name} {how}".strip(), *head], rows)
    others = {m: [run["kinds"] for run in runs if "kinds" in run] for m, runs in found.items()}
    others = {model: kinds for model, kinds in others.items() if kinds}
    if others:
        names = list(next(iter(others.values()))[0])
        markdown(["recall", *names], [[NAMES[m], *means(k, names)] for m, k in others.items()])
    for model, runs in found.items():
        served(model, [run["served"] for run in runs if "served" in run])
    shortly(found)


def shortly(found: Mapping[str, Sequence[Run]]) -> None:
    """The least recall of all seeds, KB and slots an item, as trained and at the sizes beyond."""
    print()

    def cell(seen: Sequence[Mapping[str, float]]) -> str:
        kilobytes = fmean(one["bytes"] for one in seen) / 1024
        each = fmean(one["slots"] / one["items"] for one in seen)
        return f"{part(min(one['recall'] for one in seen))} ({kilobytes:,.0f}; {each:.2f})"

    first = next(iter(found.values()))[0]["found"]
    places = [place for place in (0, 1, 3, 4) if place < len(first)]
    head = [f"{first[place]['items']:,}, {first[place]['tokens']:,}" for place in places]
    rows = [
        [NAMES[name], str(len(runs)), *(cell([run["found"][p] for run in runs]) for p in places)]
        for name, runs in found.items()
    ]
    markdown(["least recall (KB; slots an item)", "seeds", *head], rows)


def served(model: str, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> None:
    """Means of one model served otherwise: thresholds, bits, newest values, fewer bytes."""
    for place in runs[0] if runs else ():
        of = [run[place] for run in runs if place in run]
        said = ", ".join(f"{name} {fmean(one[name] for one in of):,.4g}" for name in of[0])
        print(f"- {model}, {place}: {said}")


def means(rows: Sequence[Mapping[str, float]], names: Iterable[str]) -> list[str]:
    """Means over seeds."""
    return [part(fmean(row[name] for row in rows)) for name in names]


def timed(kept: Mapping[str, Any]) -> None:
    """The tables of `benchmarks.gpu`."""
    print(f"{', '.join(kept['machine'].values())}; product {kept['product_tflops']:.0f} TFLOP/s\n")
    for name, rows in kept.items():
        if isinstance(rows, list) and rows:
            print(name + "\n")
            markdown(list(rows[0]), [[number(cell) for cell in row.values()] for row in rows])


def part(number: float) -> str:
    """.123, or 1.00."""
    return f"{number:.3f}".lstrip("0") if number < 0.9995 else "1.00"


def number(cell: float) -> str:
    """A number as short as it can be told."""
    return f"{cell:.3g}" if isinstance(cell, float) and cell < 1000 else f"{cell:,.0f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table."""
    for line in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(line) + " |")
    print()


if __name__ == "__main__":
    main()
