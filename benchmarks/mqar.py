"""Redundant recall by trained models: recall against the bytes held, many models on one GPU.

``python -m benchmarks.mqar [--steps N] [--seeds N ...] [--workers N] [--models NAME ...]`` trains
every model from every seed, several at once, and prints recall and slots an item as they come; then
the tables. ``delta_wide:1`` is that model from the first seed alone. KVM-like and OVQ-like rules
wait for ``mass`` of their seed, whose bytes they are given; so ``mass`` comes first, and then all
models of a seed before the next one: what the clock leaves out is seeds, not models.

After ``--deadline`` seconds no training goes on: what has begun is asked as it is, and says so, and
a little later it is asked plain sequences alone. All is kept in mqar.json as it comes, of which
``python -m benchmarks.mqar_tables FOLDER`` makes the tables again.
``--vary "lag=1" "lag=0; rate=1e-3"`` trains every model in each of these ways.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, time
from typing import Any

import torch

from distinctkv import snapshot
from distinctkv.nn import HybridLM
from distinctkv.nn.train import Step
from reproduction.studies import mqar as study
from reproduction.studies.mqar_models import (
    LARGE,
    NAMES,
    SMALL,
    Score,
    Size,
    make_model,
    train_model,
)
from reproduction.studies.runner import device

from . import mqar_tables

WAITING = ("kvm", "ovq")  # for the bytes of mass
GRACE = 40.0  # seconds after the deadline in which more than plain sequences is still asked
# More to ask a large model: fewer items, items that come once or twice, and many that come once.
MORE = ((16, 128), (128, 4096), (128, 512), (64, 384), (512, 3072), (2048, 8192))
Job = tuple[str, str, int]  # how it is varied, model, seed
Run = dict[str, Any]


def main() -> None:
    """Train and ask."""
    said = _words()
    base = SMALL if said.small else replace(LARGE, asked=LARGE.asked + MORE)
    base = replace(base, steps=said.steps or base.steps)
    started, until = perf_counter(), time() + said.deadline
    place = torch.cuda.get_device_name() if device() == "cuda" else "cpu"
    print(f"{place}, torch {torch.__version__}, {base}", flush=True)
    kept = {"device": place, "torch": torch.__version__, "size": asdict(base)}
    runs: list[Run] = []
    out = Path(os.environ.get("OUT", ".")) / said.out
    for run in done(jobs(said.vary, said.models, said.seeds), base, until, said):
        runs.append(run)
        snapshot.replace(out, json.dumps(kept | {"runs": runs}).encode())
        print(f"{perf_counter() - started:5.0f} s  {_line(run)}", flush=True)
    mqar_tables.recalled(kept | {"runs": runs})


def jobs(hows: Sequence[str], models: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """What is to be done: what others wait for first, then all models of a seed after another.

    >>> [job[1:] for job in jobs([""], ["full", "mass", "delta:1"], [5, 6])]
    [('mass', 5), ('mass', 6), ('full', 5), ('delta', 5), ('full', 6)]
    """
    found = []
    for how in hows:
        for turn, seed in enumerate(seeds):
            for model in models:
                name, _, most = model.partition(":")
                if turn < int(most or len(seeds)):
                    found.append((how, name, seed))
    return sorted(found, key=lambda job: job[1] != "mass")


def done(todo: list[Job], base: Size, until: float, said: argparse.Namespace) -> Iterator[Run]:
    """What came of each job, as it comes; a process that dies takes those beside it along."""
    first = {job for job in todo if job[1] == "mass"}
    held: dict[Job, Run] = {}  # what came of mass
    pool = ProcessPoolExecutor(said.workers, get_context("spawn"))
    going: dict[Future[Run], Job] = {}
    while todo or going:
        for job in [job for job in todo if not _waits(job, first, held)]:
            if len(going) < said.workers:
                todo.remove(job)
                ours = held.get(_mass(job)) if job[1] in WAITING else None
                going[pool.submit(_one, job, base, ours, until, said.brief)] = job
        for future in wait(going, return_when=FIRST_COMPLETED).done:
            job = going.pop(future)
            try:
                run = future.result()
            except BrokenProcessPool:
                run = {"wrong": "its process died, or one beside it", "curve": []}
                pool = ProcessPoolExecutor(said.workers, get_context("spawn"))
            run = {"how": job[0], "model": job[1], "seed": job[2], **run}
            if job in first:
                held[job] = run
            yield run
    pool.shutdown()


def _mass(job: Job) -> Job:
    """The job whose bytes this one is given."""
    return (job[0], "mass", job[2])


def _waits(job: Job, first: set[Job], held: Mapping[Job, Run]) -> bool:
    """Whether a job needs to know what is not known yet."""
    return job[1] in WAITING and _mass(job) in first and _mass(job) not in held


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.mqar", description=__doc__)
    parser.add_argument("--steps", type=int, help="of training; by default those of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--models", nargs="+", default=NAMES, type=_model, metavar="NAME[:SEEDS]")
    parser.add_argument("--vary", nargs="+", default=("",), help="changes of the size")
    parser.add_argument("--deadline", type=float, default=86400.0, help="seconds")
    parser.add_argument("--brief", action="store_true", help="ask plain sequences alone")
    parser.add_argument("--small", action="store_true", help="the size of a processor")
    parser.add_argument("--out", default="mqar.json")
    return parser.parse_args()


def _model(word: str) -> str:
    """A model, and how many of the seeds it is trained from."""
    name, colon, most = word.partition(":")
    if name not in NAMES or (colon and not most.isdecimal()):
        raise argparse.ArgumentTypeError(f"{word!r}: NAME or NAME:SEEDS, of {', '.join(NAMES)}")
    return word


def varied(size: Size, how: str) -> Size:
    """The size with changes like ``taps=1; rate=1e-3``."""
    parts = [part.split("=", 1) for part in how.split(";") if part.strip()]
    return replace(size, **{name.strip(): literal_eval(value.strip()) for name, value in parts})


def _one(job: Job, base: Size, ours: Run | None, until: float, brief: bool) -> Run:
    """Train one model and ask it; what went wrong, if something did."""
    torch.set_num_threads(1)
    started, curve = perf_counter(), []
    how, name, seed = job

    def shown(step: Step) -> bool:
        seconds = perf_counter() - started
        curve.append([step.step, round(seconds, 1), step.loss, *step.slots.values()])
        return time() > until

    if time() > until:
        return {"wrong": "the deadline came before the first step", "curve": curve}
    if name in WAITING and "found" not in (ours or {}):
        return {"wrong": "there are no bytes of mass to be given; train mass too", "curve": curve}
    try:
        size = varied(base, how)
        each = ours["found"][0]["slots"] / size.asked[0][0] if ours else 1.0
        model = train_model(partial(make_model, name), seed, size, device(), each, shown)
        trained_in = perf_counter() - started
        answer = asked(model, name, seed, size, _held(ours), brief=brief, until=until + GRACE)
        answer["cut"] = curve[-1][0] + 1 < size.steps
        return {**answer, "seconds": [trained_in, perf_counter() - started], "curve": curve}
    except Exception:  # one failure must not stop the others
        return {"wrong": traceback.format_exc(), "curve": curve}


def asked(
    model: HybridLM,
    name: str,
    seed: int,
    size: Size,
    held: Mapping[tuple[int, int], float],
    *,
    brief: bool,
    until: float,
) -> Run:
    """What a trained model recalls: plain sequences, and more as long as there is time."""
    found = study.evaluate_sizes(model, size, seed, held)
    answer: Run = {"found": [_told(at, one) for at, one in found.items()]}
    more: dict[str, Mapping[str, float]] = {}
    if not brief and time() < until:
        answer["kinds"] = study.evaluate_kinds(model, size, seed)
        if name == "mass":
            more["newest"] = study.evaluate_newest(model, size, seed)
    for at in size.asked[3:5]:
        rows: study.Numbers = {}
        if not brief and time() < until:
            if name == "mass":
                rows = study.evaluate_settings(model, size, seed, at)
            elif name in WAITING:
                rows = study.evaluate_fewer_bytes(model, size, seed, at, held[at])
        more |= {f"{at[0]} items, {' '.join(row)}": of for row, of in rows.items()}
    return {**answer, "served": more} if more else answer


def _told(at: tuple[int, int], one: Score) -> dict[str, float]:
    return {"items": at[0], "tokens": at[1], **asdict(one)}


def _held(ours: Run | None) -> dict[tuple[int, int], float]:
    found = [] if ours is None else ours["found"]
    return {(one["items"], one["tokens"]): one["bytes"] for one in found}


def _line(run: Run) -> str:
    who = f"{run['how']} {run['model']} {run['seed']}: "
    if "wrong" in run:
        return f"{who}{run['wrong'][-600:]}"
    cells = (f"{one['recall']:.3f} ({one['slots'] / one['items']:.1f})" for one in run["found"])
    seconds = "+".join(f"{part:.0f}" for part in run["seconds"])
    step, _, loss = run["curve"][-1][:3]
    losses = " ".join(f"{row[2]:.2g}" for row in run["curve"][::4])
    return f"{who}{' '.join(cells)}  {seconds} s, step {step}, loss {losses} {loss:.3f}"


if __name__ == "__main__":
    main()
