"""``python -m reproduction.studies.companion``: prepare the corpus, run tasks, show results."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from traceback import format_exc

import torch

from ...data import DataDamaged
from . import collect, corpus
from .tasks import (
    NEEDLES,
    PAIRED,
    TASKS,
    TRAIN,
    TUNE,
    Setting,
    brief,
    run,
    small_setting,
    toy_setting,
)
from .train import group


def main(argv: list[str] | None = None) -> None:
    """Read the command line and do what it says."""
    started = perf_counter()
    parser = argparse.ArgumentParser(prog="python -m reproduction.studies.companion")
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="write the corpus as one file")
    prepare.add_argument("path", type=Path)
    prepare.add_argument("--pairs", action="store_true", help="of tokens that are pairs of bytes")
    tasks = commands.add_parser("run", help="run tasks, in this order")
    tasks.add_argument("corpus", help="the file that prepare has written, or toy")
    tasks.add_argument("folder", type=Path, help="of results and weights")
    known = ", ".join(TASKS)
    tasks.add_argument("tasks", nargs="+", type=task_and_seed, help=f"TASK/SEED, of {known}")
    tasks.add_argument("--pairs", type=Path, help="the file that prepare --pairs has written")
    tasks.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    tasks.add_argument("--steps", type=int, default=TRAIN.steps, help="of a training")
    tasks.add_argument("--tune-steps", type=int, default=TUNE.steps)
    tasks.add_argument("--needle-steps", type=int, default=NEEDLES.steps)
    tasks.add_argument("--small", action="store_true", help="models of a size for a CPU")
    tasks.add_argument("--segments", type=int, help="measure only so many of each text")
    tasks.add_argument("--texts", type=int, default=8, help="with needles, of each kind")
    show = commands.add_parser("show", help="one line for each result in a folder")
    show.add_argument("folder", type=Path)
    gather = commands.add_parser("collect", help="write the results in a folder as one file")
    gather.add_argument("folder", type=Path)
    gather.add_argument("path", type=Path)
    given = parser.parse_args(argv)
    if given.command == "prepare":
        try:
            (corpus.read_pairs() if given.pairs else corpus.read_novels()).save(given.path)
        except (FileNotFoundError, DataDamaged) as error:
            parser.error(str(error))
    elif given.command == "collect":
        collect(given.folder, given.path)
    elif given.command == "show":
        for path in sorted(given.folder.glob("*.json")):
            sys.stdout.write(f"{path.stem} {brief(json.loads(path.read_text()))}\n")
    else:
        with group() as ranks:
            _run(given, ranks, started)


def task_and_seed(text: str) -> tuple[str, int]:
    """A task and its seed.

    >>> task_and_seed("tune+cache/2")
    ('tune+cache', 2)
    """
    name, _, seed = text.rpartition("/")
    if name.removesuffix(PAIRED).partition("+")[0] not in TASKS or not seed.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no TASK/SEED, as full/0; the tasks are {', '.join(TASKS)}"
        )
    return name, int(seed)


def _run(given: argparse.Namespace, ranks: tuple[int, int], started: float) -> None:
    """Run tasks until the time is over."""
    given.folder.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")

    def say(text: str) -> None:
        if ranks[0] == 0:
            sys.stdout.write(f"[{perf_counter() - started:6.1f}] {text}\n")
            sys.stdout.flush()

    def stop() -> bool:
        return bool(perf_counter() - started > given.seconds)

    if given.corpus == "toy":
        setting = toy_setting(given.folder)
        few = replace(setting.train, steps=min(setting.train.steps, given.steps))
        setting = replace(setting, train=few)
    elif given.small:
        setting = small_setting(corpus.Corpus.load(Path(given.corpus)), given.folder)
    else:
        setting = Setting(
            corpus.Corpus.load(Path(given.corpus)).first(given.segments), given.folder,
            train=replace(TRAIN, steps=given.steps), tune=replace(TUNE, steps=given.tune_steps),
            needles=replace(NEEDLES, steps=given.needle_steps),
            texts=given.texts, compiled=device == "cuda",
            pairs=given.pairs and partial(corpus.Corpus.load, given.pairs),
        )  # fmt: skip
    setting = replace(setting, device=device, ranks=ranks, say=say, stop=stop)
    loaded = setting.corpus
    say(f"ready: {device}, {len(loaded.train)} bytes to train on")
    for task, seed in given.tasks:
        if stop():
            say(f"no time is left for {task}/{seed}")
            continue
        try:
            run(setting, task, seed)
        except Exception:  # those after it do not wait for it
            if len(given.tasks) == 1:
                raise
            say(f"{task}/{seed} failed: {format_exc(limit=-6)[-3000:]}")
        if device == "cuda":
            torch.cuda.empty_cache()
        if ranks[1] > 1:
            torch.distributed.barrier()


if __name__ == "__main__":
    main()
