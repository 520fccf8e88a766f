"""Processes that take contexts in turn until they, or the time, are at an end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import contest, rows
from . import model as llm_model
from .rows import Case
from .way import Way
from .ways import STRONG, everyone

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROOMS = (1.0, 0.25, 0.05)  # how much is held at once at first, and when memory was short


class Todo(NamedTuple):
    """With which model, where, what rows, of which code, and until when by the clock.

    Contexts from seed ``few`` on are held by the strong rivals alone, and by ours. A process has
    so large a ``share`` of the memory of a device.
    """

    folder: Path
    device: str
    dtype: str
    out: Path
    code: str
    ends: float
    few: float = float("inf")
    share: float = 1.0


def run(
    todo: Todo, cases: Sequence[Case], names: Sequence[str], parts: Sequence[float], n_workers: int
) -> None:
    """Let processes take the cases in turn; each loads the model once."""
    done = {row.cell for row in rows.load(todo.out, todo.code)}
    cases = [case for case in cases if rows.missing(done, case, _ways(todo, case, names), parts)]
    if n_workers == 1 or len(cases) < 2:
        work(todo, cases, names, parts)
        return
    todo = todo._replace(share=todo.share / min(n_workers, len(cases)))
    spawn = multiprocessing.get_context("spawn")
    taken = spawn.Value("i", 0)
    workers = [
        spawn.Process(target=work, args=(todo, cases, names, parts, taken))
        for _ in range(min(n_workers, len(cases)))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = sum(bool(worker.exitcode) for worker in workers)
    if failed:
        print(f"{failed} of {len(workers)} workers failed; what is done is kept")
    if failed == len(workers):
        raise SystemExit("every worker failed; run again to go on")


def _ways(todo: Todo, case: Case, names: Sequence[str]) -> list[Way]:
    few = case.seed >= todo.few
    every = [way for way in everyone() if way.name in names]
    return [way for way in every if not few or way.ours or way.name in STRONG]


def work(
    todo: Todo,
    cases: Sequence[Case],
    names: Sequence[str],
    parts: Sequence[float],
    taken: Any = None,  # noqa: ANN401 - a number that processes share
) -> None:
    """Measure what is missing, case by case."""
    if not cases:
        return
    if taken is not None:
        torch.set_num_threads(1)
    if todo.device.startswith("cuda"):
        torch.cuda.set_per_process_memory_fraction(min(1.0, todo.share))
    done = {row.cell for row in rows.load(todo.out, todo.code)}
    model, tokenizer = llm_model.load(todo.folder, todo.device, todo.dtype)
    for place in _places(len(cases), taken):
        if time.time() > todo.ends:
            return
        case, started = cases[place], time.perf_counter()
        wanted = rows.missing(done, case, _ways(todo, case, names), parts)
        told = f"{place + 1}/{len(cases)} {case.task} {case.length} seed {case.seed}"
        try:
            found = _found(model, tokenizer, case, wanted, todo.code)
        except RuntimeError as why:
            # Said, and left out for all ways alike: a context is written whole or not at all.
            print(f"{told} left out: {type(why).__name__}: {str(why)[:200]}", flush=True)
            if model.device.type == "cuda":
                torch.cuda.synchronize()  # a device that is lost ends this process
            continue
        rows.append(todo.out, found)
        print(f"{told}: {time.perf_counter() - started:.1f} s", flush=True)


def _found(model: PreTrainedModel, tokenizer: Any, case: Case, *rest: Any) -> list[rows.Row]:  # noqa: ANN401
    """The rows of a context, with less held at once for each time that memory is short."""
    for room in ROOMS[:-1]:
        found = contest.fits(
            lambda room=room: contest.measure(model, tokenizer, case, *rest, room=room)
        )
        if found is not None:
            return found
        contest.ours.prepare.cache_clear()
        torch.cuda.empty_cache()
    return contest.measure(model, tokenizer, case, *rest, room=ROOMS[-1])


def _places(n: int, shared: Any) -> Iterator[int]:  # noqa: ANN401
    """Cases one after the other, or those that no other process has taken."""
    if shared is None:
        yield from range(n)
        return
    while True:
        with shared.get_lock():
            place, shared.value = shared.value, shared.value + 1
        if place >= n:
            return
        yield place
