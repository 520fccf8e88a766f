"""``python -m benchmarks.llm.pilot``: does every way run here, and how long does each take alone?

One context of each length. A way that fails is shown with what it said, and the others go on. The
first length warms up; it is the time of the others that means something.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distinctkv.hf import distinct_cache

from ..common import stamp
from . import contest, ours
from . import model as llm_model
from .fetch import get
from .kv_states import Context, hold_by, read
from .questions import ask
from .recipe import Recipe
from .rows import ASIDE, Case
from .selection import short
from .ways import CACHE, everyone

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SHOWN = ("ours", "ours, horizon 512, importance .25, attended", "threshold 1", CACHE.name)


@torch.no_grad()
def main() -> None:
    """A line for each way and length."""
    args = _arguments()
    stamp("torch", "transformers", "kvpress")
    model, tokenizer = llm_model.load(
        args.model or llm_model.find() or get(), args.device, args.dtype
    )
    ends = time.time() + args.deadline
    spent: dict[str, dict[int, str]] = {}
    for length in args.length:
        task = contest.task_of(tokenizer, Case("prose", length, ASIDE - 1))
        ids = torch.tensor([task.ids], device=model.device)
        read(model, ids)
        started = _now(model)
        context = read(model, ids)
        spent.setdefault("read, keeping all tensors", {})[length] = f"{_now(model) - started:.3f}"
        for way in everyone():
            if way.ours and way.name not in SHOWN:
                continue
            if time.time() < ends:
                _forget(context)
                told = _tried(model, context, task, way, args.kept)
                spent.setdefault(way.name, {})[length] = told
                print(f"{length} {way.name}: {told}", file=sys.stderr, flush=True)
        if time.time() < ends:
            same = _guarded(lambda context=context: _same(model, context))
            spent.setdefault("less the cache", {})[length] = same
            alone = _guarded(lambda context=context: _one_threshold(model, context))
            spent.setdefault("the cache at threshold 1", {})[length] = alone
        del context
        if model.device.type == "cuda":
            peak = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
            spent.setdefault("peak of memory", {})[length] = peak
            torch.cuda.reset_peak_memory_stats()
    print("seconds alone to hold + to ask, all sizes; right of 8 at each size")
    for name, times in spent.items():
        print(f"{short(name)[:26]:26}" + "".join(f"{times.get(n, ''):>18}" for n in args.length))


def _tried(model: Any, context: Context, task: Any, way: Any, parts: list[float]) -> str:  # noqa: ANN401
    def go() -> str:
        some = [1.0] if way.sizes_itself else parts
        started = _now(model)
        made = way.hold(model, context, some)
        middle = _now(model)
        answers = ask(model, made, len(context), task.questions)
        right = "".join(f"{sum(one.right for one in some)}" for some in answers)
        return f"{middle - started:.2f}+{_now(model) - middle:.2f} {right}"

    return _guarded(go)


def _forget(context: Context) -> None:
    """What ways share is to be paid for by each."""
    ours.prepare.cache_clear()
    for layer in context.layers:
        layer.__dict__.pop("received", None)


def _guarded(go: Any) -> str:  # noqa: ANN401
    try:
        return str(go())
    except Exception as why:
        traceback.print_exc(limit=-4)
        return f"FAILED {type(why).__name__}"


def _same(model: PreTrainedModel, context: Context) -> str:
    """Slots of the cache, and how far ours for all layers at once is from them."""
    cache = distinct_cache(model, threshold=1.0)
    theirs = hold_by(cache, context)
    mine = ours.held(ours.prepare(model, context), Recipe(), 1.0)
    n = [sum(int((one.bias > -torch.inf).sum()) for one in some) for some in (mine, theirs)]
    return f"{n[0] - n[1]} of {n[1]}"


def _one_threshold(model: PreTrainedModel, context: Context) -> str:
    times = []
    for _ in range(2):
        cache = distinct_cache(model, threshold=1.0)
        started = _now(model)
        hold_by(cache, context)
        times.append(_now(model) - started)
    return f"{min(times):.3f}"


def _now(model: PreTrainedModel) -> float:
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.pilot", description=__doc__)
    parser.add_argument("--length", type=int, nargs="+", default=[1024, 4096, 7400])
    parser.add_argument("--kept", type=float, nargs="+", default=[0.5, 0.25, 0.125, 0.0625])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds; no way begins after")
    parser.add_argument("--model", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
