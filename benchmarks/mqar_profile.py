"""Where the time of a training step of study ``mqar`` goes.

``python -m benchmarks.mqar_profile [MODEL ...] [--vary "lag=0" ...] [--brief]`` prints the kernels
that three steps take longest in and, on a GPU, how long a captured step takes; ``--brief`` that
alone.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch
from torch.profiler import profile as torch_profile

from distinctkv.nn.train import Captured, Learner
from reproduction.studies.mqar_models import (
    LARGE,
    NAMES,
    SMALL,
    Size,
    batches,
    make_model,
    set_slots,
)
from reproduction.studies.runner import device

from .mqar import varied


def main() -> None:
    """Every model asked for, in every way asked for."""
    parser = argparse.ArgumentParser(prog="benchmarks.mqar_profile", description=__doc__)
    parser.add_argument("models", nargs="*", default=NAMES, metavar="MODEL")
    parser.add_argument("--vary", nargs="+", default=("",), help="changes of the size")
    parser.add_argument("--brief", action="store_true", help="a captured step alone")
    parser.add_argument("--small", action="store_true", help="the size of a processor")
    said = parser.parse_args()
    for name in said.models:
        for how in said.vary:
            profile(name, varied(SMALL if said.small else LARGE, how), how, brief=said.brief)


def profile(name: str, size: Size, how: str, *, brief: bool) -> None:
    """Print the kernels that a step takes longest in, and how long a captured step takes."""
    started = perf_counter()
    torch.set_float32_matmul_precision("high")
    model = make_model(name, size).to(device()).train()
    set_slots(model, 2.5 * max(size.items), size.tokens)
    learner = Learner(model, size.answered)
    learner.set_rate(size.rate)
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
        from .device import clock  # needs triton

        batch = next(drawn)
        ms = min(clock(lambda: step(*batch)) for _ in range(9))  # others may be at work
        print(f"captured: {ms:.2f} ms a step, {ready:.0f} s to begin: {name} {how}", flush=True)


if __name__ == "__main__":
    main()
