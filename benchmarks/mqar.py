"""Redundant recall by trained models: recall against the bytes held, many models on one GPU.

``python -m benchmarks.mqar [--steps N] [--seeds N ...] [--workers N] [--models NAME ...]`` trains
every model from every seed in a process of its own and prints recall and slots an item as they
come. KVM-like and OVQ-like rules wait for ``mass`` of their seed, whose bytes they are given.
After ``--deadline`` seconds no training goes on: what has begun is asked as it is, and says so. All
is kept in mqar.json; ``python -m benchmarks.mqar_tables`` makes tables of it.
``--vary "taps=4" "taps=1; rate=1e-3"`` trains every model in each of these ways.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from ast import literal_eval
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, time
from typing import Any

import torch
from torch.profiler import profile as torch_profile

from distinctkv.nn.capturing import Captured
from distinctkv.nn.training import Learner, Step
from distinctkv.studies import mqar
from distinctkv.studies.device import device
from distinctkv.studies.mqar_drawing import batches
from distinctkv.studies.mqar_models import LARGE, NAMES, SMALL, Found, Size, fit, made, trained

WAITING = ("kvm", "ovq")  # for the bytes of mass
Job = tuple[str, str, int]  # how it is varied, model, seed


def main() -> None:
    """Train and ask."""
    said = _words()
    base = replace(SMALL if said.small else LARGE, **({"steps": said.steps} if said.steps else {}))
    started, until = perf_counter(), time() + said.deadline
    place = torch.cuda.get_device_name() if device() == "cuda" else "cpu"
    print(f"{place}, torch {torch.__version__}, {base}", flush=True)
    if said.profile:
        for name in said.models:
            for how in said.vary:
                profile(name, varied(base, how), how, brief=said.brief)
        return
    todo = [(how, name, seed) for how in said.vary for name in said.models for seed in said.seeds]
    runs: list[dict[str, Any]] = []
    held: dict[tuple[str, int], dict[str, Any]] = {}
    out = Path(os.environ.get("OUT", ".")) / said.out
    with ProcessPoolExecutor(said.workers, get_context("spawn")) as pool:
        going: dict[Future[dict[str, Any]], Job] = {}
        while todo or going:
            ready = [job for job in todo if _ready(job, held, said.models)]
            for job in ready[: said.workers - len(going)]:
                todo.remove(job)
                ours = held.get((job[0], job[2])) if job[1] in WAITING else None
                going[pool.submit(_one, job, base, ours, until, said.brief)] = job
            if not going:
                break
            done, _ = wait(going, return_when=FIRST_COMPLETED)
            for future in done:
                job = going.pop(future)
                run = {"how": job[0], "model": job[1], "seed": job[2], **future.result()}
                runs.append(run)
                if job[1] == "mass":
                    held[job[0], job[2]] = run
                about = {"device": place, "torch": torch.__version__, "size": asdict(base)}
                out.write_text(json.dumps(about | {"runs": runs}))
                print(f"{perf_counter() - started:5.0f} s  {_line(run)}", flush=True)


def _words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.mqar", description=__doc__)
    parser.add_argument("--steps", type=int, help="of training; by default those of the study")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--models", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--vary", nargs="+", default=("",), help="changes of the size")
    parser.add_argument("--deadline", type=float, default=86400.0, help="seconds")
    parser.add_argument("--brief", action="store_true", help="ask plain sequences alone")
    parser.add_argument("--small", action="store_true", help="the size of a processor")
    parser.add_argument("--out", default="mqar.json")
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes")
    return parser.parse_args()


def _ready(job: Job, held: dict[tuple[str, int], Any], models: list[str]) -> bool:
    """Whether all that a job needs to know is known."""
    return job[1] not in WAITING or "mass" not in models or (job[0], job[2]) in held


def varied(size: Size, how: str) -> Size:
    """The size with changes like ``taps=1; rate=1e-3``."""
    parts = [part.split("=", 1) for part in how.split(";") if part.strip()]
    return replace(size, **{name.strip(): literal_eval(value.strip()) for name, value in parts})


def _one(
    job: Job, base: Size, ours: dict[str, Any] | None, until: float, brief: bool
) -> dict[str, Any]:
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
    try:
        size = varied(base, how)
        told = _held(ours)
        each = ours["found"][0]["slots"] / size.asked[0][0] if told and ours else 2.5
        model = trained(name, seed, size, device(), each, shown)
        trained_in = perf_counter() - started
        found = mqar.answers(model, size, seed, told)
        answer: dict[str, Any] = {
            "found": [_told(at, one) for at, one in found.items()],
            "cut": curve[-1][0] + 1 < size.steps,
        }
        if not brief:
            answer["kinds"] = mqar.kinds(model, size, seed)
        if name == "mass" and not brief:
            more = mqar.served(model, size, seed)
            answer["served"] = {" ".join(place): numbers for place, numbers in more.items()}
        return {**answer, "seconds": [trained_in, perf_counter() - started], "curve": curve}
    except Exception:  # one failure must not stop the others
        return {"wrong": traceback.format_exc(), "curve": curve}


def profile(name: str, size: Size, how: str, *, brief: bool) -> None:
    """Print the kernels that a step takes longest in, and how long a captured step takes."""
    started = perf_counter()
    torch.set_float32_matmul_precision("high")
    model = made(name, size).to(device()).train()
    fit(model, 2.5 * max(size.items), size.tokens)
    learner = Learner(model, size.answered)
    learner.go_at(size.rate)
    drawn = batches(0, size, device())
    for _ in range(3):
        learner(*next(drawn))
    ready = perf_counter() - started
    if not brief:
        with torch_profile() as seen:
            for _ in range(3):
                learner(*next(drawn))
        print(f"\n{name}, 3 steps")
        by = "self_device_time_total" if device() == "cuda" else "cpu_time_total"
        print(seen.key_averages().table(sort_by=by, row_limit=14, max_name_column_width=60))
    if device() == "cuda":
        step = Captured(learner, model)
        for _ in range(5):
            step(*next(drawn))
        batch = next(drawn)
        from .device import clock

        ms = min(clock(lambda: step(*batch)) for _ in range(9))  # others may be at work
        print(f"captured: {ms:.2f} ms a step, {ready:.0f} s to begin: {name} {how}", flush=True)


def _told(at: tuple[int, int], one: Found) -> dict[str, float]:
    return {"items": at[0], "tokens": at[1], **asdict(one)}


def _held(ours: dict[str, Any] | None) -> dict[tuple[int, int], float]:
    found = [] if ours is None else ours.get("found", [])
    return {(one["items"], one["tokens"]): one["bytes"] for one in found}


def _line(run: dict[str, Any]) -> str:
    who = f"{run['how']} {run['model']} {run['seed']}: "
    if "wrong" in run:
        return who + run["wrong"][-600:]
    cells = (f"{one['recall']:.3f} ({one['slots'] / one['items']:.1f})" for one in run["found"])
    seconds = "+".join(f"{part:.0f}" for part in run["seconds"])
    step, _, loss = run["curve"][-1][:3]
    losses = " ".join(f"{row[2]:.2g}" for row in run["curve"][::4])
    return f"{who}{' '.join(cells)}  {seconds} s, step {step}, loss {losses} {loss:.3f}"


if __name__ == "__main__":
    main()
