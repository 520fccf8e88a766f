"""``python -m benchmarks.llm.seconds``: how long from the tokens of a context to its small cache.

One context of prose, one size, nothing else on the machine: a plain prefill, our cache, and KVzip,
each from its first pass over the context to the end. The order turns from round to round, the first
round warms up and is not counted; medians are shown, with the least and the most.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distinctkv.hf import FAST, distinct_cache

from ..common import stamp, table
from . import contest, presses
from . import model as llm_model
from .fetch import get
from .rows import ASIDE, Case

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLAIN, ZIP = "plain prefill", "KVzip"


@torch.no_grad()
def main() -> None:
    """A line for each way, length and type."""
    args = _arguments()
    stamp("torch", "transformers", "kvpress")
    ends, rows = time.perf_counter() + args.deadline, []
    for kind in args.dtype:
        folder = args.model or llm_model.find() or get()
        model, tokenizer = llm_model.load(folder, args.device, kind)
        for length in args.length:
            task = contest.task_of(tokenizer, Case("prose", length, ASIDE - 1))
            ids = torch.tensor([task.ids], device=model.device)
            taken = timed(model, ways(model, ids, args.kept), args.rounds, ends)
            rows += [[kind, length, *row] for row in shares(taken)]
    table(["type", "tokens", "way", "s", "least", "most", "less prefill", "of KVzip's"], rows)


def ways(model: PreTrainedModel, ids: Tensor, kept: float) -> dict[str, Callable[[], None]]:
    """What is timed. The threshold is the one that ``kept`` finds in this context."""
    found = distinct_cache(model, kept=kept)
    _read(model, ids, found)
    plans: dict[str, dict[str, Any]] = {
        "ours, kept=": {"kept": kept},
        "ours, threshold": {"threshold": found.summary().threshold},
        "ours, fast, kept=": {"kept": kept, "merge": FAST},
    }
    some = {name: partial(_ours, model, ids, plan) for name, plan in plans.items()}
    return {PLAIN: partial(_plain, model, ids), **some, ZIP: partial(_zip, model, ids, kept)}


def _plain(model: PreTrainedModel, ids: Tensor) -> None:
    from transformers import DynamicCache

    with presses.stock(model):
        _read(model, ids, DynamicCache())


def _ours(model: PreTrainedModel, ids: Tensor, plan: dict[str, Any]) -> None:
    _read(model, ids, distinct_cache(model, **plan))


def _zip(model: PreTrainedModel, ids: Tensor, kept: float) -> None:
    presses.zipped(model, ids, [kept], lambda: None)


def _read(model: PreTrainedModel, ids: Tensor, cache: Any) -> None:  # noqa: ANN401
    model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)


def timed(
    model: PreTrainedModel, these: dict[str, Callable[[], None]], rounds: int, ends: float
) -> dict[str, list[float]]:
    """Seconds of each way in each round but the first."""
    taken: dict[str, list[float]] = {name: [] for name in these}
    names = list(these)
    for turn in range(rounds + 1):
        if turn > 1 and time.perf_counter() > ends:
            break
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = _now(model)
            these[name]()
            if turn:
                taken[name].append(_now(model) - start)
    return taken


def shares(taken: dict[str, list[float]]) -> list[list[object]]:
    """Medians, their spread, what is more than a prefill, and the part of KVzip's.

    >>> shares({"plain prefill": [1.0], "ours": [2.0], "KVzip": [4.0]})[1]
    ['ours', '2.000', '2.000', '2.000', '1.000', '0.33']
    """
    middle = {name: median(some) for name, some in taken.items()}
    least = middle[PLAIN]
    rows: list[list[object]] = []
    for name, some in taken.items():
        more = middle[name] - least
        part = more / (middle[ZIP] - least)
        figures = [f"{x:.3f}" for x in (middle[name], min(some), max(some), more)]
        rows.append([name, *figures, f"{part:.2f}"])
    return rows


def _now(model: PreTrainedModel) -> float:
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.seconds", description=__doc__)
    parser.add_argument("--length", type=int, nargs="+", default=[1024, 4096, 7400])
    parser.add_argument("--kept", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds; then fewer rounds")
    parser.add_argument("--model", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
