"""Redundant recall by trained models: recall against the bytes held, many models on one GPU.

``python -m benchmarks.mqar [--steps N] [--seeds N] [--workers N] [--models NAME ...]`` trains every
model from every seed in a process of its own and prints recall, kilobytes and slots as they come,
then a table of means. What is finished is kept in mqar.json when it is stopped. The models are
those of study ``mqar`` at its large size, and one with a write gate.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import numpy as np
import torch

from distinctkv.studies.device import device
from distinctkv.studies.mqar import asked
from distinctkv.studies.mqar_models import LARGE, NAMES, Size, ask, fit, task, trained

EACH = 4.5  # slots an item and head that ours opens at this size; what a schedule is given


def main() -> None:
    """Train and ask."""
    parser = argparse.ArgumentParser(prog="benchmarks.mqar", description=__doc__)
    parser.add_argument("--steps", type=int, default=LARGE.steps)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--models", nargs="+", default=NAMES, choices=NAMES)
    said = parser.parse_args()
    size = replace(LARGE, steps=said.steps)
    place = torch.cuda.get_device_name() if device() == "cuda" else "cpu"
    print(f"{place}, {said.steps} steps of {size.batch} sequences, {said.seeds} seeds", flush=True)
    jobs = [(name, seed) for seed in range(said.seeds) for name in said.models]
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in said.models}
    out, started = Path(os.environ.get("OUT", ".")) / "mqar.json", perf_counter()
    with ProcessPoolExecutor(said.workers, get_context("spawn")) as pool:
        waiting = {pool.submit(_one, name, seed, size): (name, seed) for name, seed in jobs}
        for job in as_completed(waiting):
            name, seed = waiting[job]
            done[name].append({"seed": seed, **job.result()})
            done[name].sort(key=lambda run: run["seed"])
            out.write_text(json.dumps(done))
            recalls = " ".join(f"{found['recall']:.3f}" for found in job.result()["found"])
            print(f"{perf_counter() - started:5.0f} s  {name} {seed}: {recalls}", flush=True)
    _table(done, size)


def _one(name: str, seed: int, size: Size) -> dict[str, Any]:
    started = perf_counter()
    model = trained(name, seed, size, device(), ceil(EACH * max(size.items)))
    found = []
    for items, tokens in size.asked:
        fit(model, min(ceil(EACH * items), tokens - 1), tokens)
        rng = np.random.default_rng((seed, items, tokens))
        found.append(asdict(ask(model, rng, task(size, items, tokens), asked(tokens))))
    return {"found": found, "seconds": perf_counter() - started}


def _table(done: dict[str, list[dict[str, Any]]], size: Size) -> None:
    print(f"\n{'K, L':>14}" + "".join(f"{name:>26}" for name in done))
    for place, (items, tokens) in enumerate(size.asked):
        cells = []
        for runs in done.values():
            seen = [run["found"][place] for run in runs]
            recalls = "/".join(f"{one['recall']:.3f}".lstrip("0") for one in seen)
            cells.append(f"{recalls} {fmean(one['bytes'] for one in seen) / 1024:,.0f}K")
        print(f"{items:>6}, {tokens:>6}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
