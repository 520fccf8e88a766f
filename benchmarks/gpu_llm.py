"""The cache for language models on a GPU: what compressing costs, decoding, and memory.

Run ``python -m benchmarks.gpu_llm --model FOLDER`` (120 seconds on an H200), FOLDER holding
SmolLM2-135M-Instruct; ``--shapes 135M`` or ``8B`` times random weights instead, which decode as
fast; ``--tiny`` tries every part on the CPU with a toy. Contexts are lines of logs that repeat,
drawn from seeds. In a batch that is decoded one compressed context is repeated: each stream has its
own copy in memory, so that reading and merging cost what they would for different texts. `pruned`
is a DynamicCache of evenly chosen tokens, as many for each head: what a press of kvpress leaves in
memory, whichever tokens it chooses. Nothing is compiled; steps are captured in a graph where a row
says so. Without, launching is what counts at small batches, and `device ms` leaves it out. Tokens a
second include the merging of 64 tokens into slots, which is once; kernels were built before, as the
first merging on a machine has to. `threshold` holds a threshold, `kept` a share; both begin with
the same slots. Each part has a share of the seconds, and what it does not need is left to the next;
while decoding, the rows that are compared, full and ours at a quarter, come first for each batch
and may go beyond the share.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from distinctkv.hf import FAST, DistinctCache, calibrate, distinct_cache

from .common import OUT, verdict
from .gpu_llm_decode import Decoding
from .gpu_llm_kit import SHAPES, Bench, Row, random_weights

SHOWN = 12  # kernels
STAGES = {
    "receive": "cache.attention_received",
    "measure": "layer.accumulate_pending",
    "stack": "merge._tokens",
    "metric": "merge.LayerGroup.scale",
    "slots": "merge.LayerGroup.slot_features",
    "unrotate": "metric.Rotary.unrotate",
    "features": "metric.Scale.features",
    "allocate": "merge.compare",
    "pool": "merge.pool",
    "shorten": "merge._shorten",
    "search": "budget.BudgetController.settle",
}


def compressing(bench: Bench) -> list[Row]:
    """What a prefill takes with our cache, less what it takes with a DynamicCache."""
    metric = calibrate(bench.model, list(bench.ids(2, bench.T // 4)))
    ways: dict[str, Row] = {"threshold=1": {"threshold": 1.0}, "kept=1/4": {"kept": 0.25}}
    ways |= {f"{name}, fast": {**way, "merge": FAST} for name, way in ways.items()}
    rows = []
    for B in (1, bench.wide):
        ids = bench.ids(B, bench.T)
        bench.model.set_attn_implementation("sdpa")
        plain = clocked(bench, lambda ids=ids: bench.forward(ids, DynamicCache()), 5)
        for name, way in ways.items():
            for told in (None, metric):
                rows.append({"batch": B, "plan": name})
                rows[-1] |= compress(bench, ids, plain, {**way, "metric": told}, bench.model)
    return rows


def clocked(bench: Bench, run: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Seconds, and the most bytes that were held beyond those before."""
    if bench.tiny:
        return bench.clock(run, rounds), 1.0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    seconds = bench.clock(run, rounds)
    return seconds, torch.cuda.max_memory_allocated() - before


def compress(
    bench: Bench,
    ids: Tensor,
    full: tuple[float, float],
    way: Row,
    model: Any,  # noqa: ANN401
) -> Row:
    """One plan beside the seconds and the peak of a full cache; a large model gets one round."""
    plain, most = full
    caches: list[DistinctCache] = []

    def run() -> None:
        caches.clear()
        caches.append(distinct_cache(model, **way))
        bench.forward(ids, caches[0], model)

    taken, peak = clocked(bench, run, 3 if model is bench.model else 1)
    summary = caches[0].summary()
    own = way.get("metric") is None
    return {"metric": "own" if own else "calibrated", "prefill ms": 1e3 * plain,
            "compress ms": 1e3 * (taken - plain), "share": (taken - plain) / plain,
            "peak of full": peak / most, "kept": summary.kept,
            "bytes": summary.bytes / summary.full, "threshold": summary.threshold}  # fmt: skip


def staged(bench: Bench, decoding: Decoding) -> list[Row]:
    """Where the time of compressing goes; each stage waits for the device, so the sum is more.

    `slots` is the rotation and the features of what is held, where no kernel makes them with the
    rest; the last row is while decoding.
    """
    rows = []
    plain, wide = {"threshold": 1.0}, bench.wide
    fast = {**plain, "merge": FAST}
    for B, way in ((1, plain), (1, fast), (1, {"kept": 0.25}), (wide, plain), (wide, fast)):
        ids, spent = bench.ids(B, bench.T), dict.fromkeys(STAGES, 0.0)
        with watched(bench, spent):
            bench.forward(ids, distinct_cache(bench.model, **way))
        rows.append({"batch": B, "ms of": _name(way), **{k: 1e3 * v for k, v in spent.items()}})
    B, spent = bench.batches[0], dict.fromkeys(STAGES, 0.0)
    cache = decoding.make("threshold 1/4", B)
    ids = torch.full((B, bench.steps), 5, device=bench.device)
    with watched(bench, spent):
        bench.forward(ids, cache)
    what = f"{bench.steps} more"
    return [*rows, {"batch": B, "ms of": what, **{k: 1e3 * v for k, v in spent.items()}}]


def kernels(bench: Bench) -> list[Row]:
    """What the device does more for our cache than for a DynamicCache, most first."""
    ids = bench.ids(bench.wide, bench.T)
    rows = []
    for merge in ({}, {"merge": FAST}):
        way = {"threshold": 1.0, **merge}
        bench.model.set_attn_implementation("sdpa")
        plain = bench.busy(lambda: bench.forward(ids, DynamicCache()))
        ours = bench.busy(lambda way=way: bench.forward(ids, distinct_cache(bench.model, **way)))
        more = {name: ours[name] - plain.get(name, 0.0) for name in ours}
        rows.append({"ms of": _name(way), "kernel": "all", "more": sum(more.values())})
        for name in sorted(more, key=lambda name: -more[name])[:SHOWN]:
            rows.append({"ms of": _name(way), "kernel": name[:60], "more": more[name]})
    return rows


def _name(way: Row) -> str:
    """A plan in few letters."""
    size = ", ".join(f"{key}={value}" for key, value in way.items() if key != "merge")
    return f"{size}, fast" if "merge" in way else size


@contextmanager
def watched(bench: Bench, spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds of each stage."""
    patches = []
    for name, path in STAGES.items():
        where = f"distinctkv.hf.{path}"
        patches.append(patch(where, _timed(bench, spent, name, resolve_name(where))))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def _timed(
    bench: Bench, spent: dict[str, float], name: str, stage: Callable[..., Any]
) -> Callable[..., Any]:
    def run(*parts: Any, **words: Any) -> Any:  # noqa: ANN401
        bench.wait()
        start = time.perf_counter()
        out = stage(*parts, **words)
        bench.wait()
        spent[name] += time.perf_counter() - start
        return out

    return run


def eight(bench: Bench) -> list[Row]:
    """The same in the shapes of a model of 8B, all layers, with random weights."""
    shapes = "" if bench.tiny else "8B"
    model, large = random_weights(shapes), SHAPES[shapes]
    rng = np.random.default_rng(0)
    lines = rng.integers(3, large["vocab_size"], (256, 16))
    drawn = lines[rng.integers(0, 256, bench.long // 16 + 1)].ravel()[: bench.long]
    ids = torch.tensor(drawn)[None].to(bench.device)
    model.set_attn_implementation("sdpa")
    plain = clocked(bench, lambda: bench.forward(ids, DynamicCache(), model), 1)
    rows = [{"plan": "kept=1/4"} | compress(bench, ids, plain, {"kept": 0.25}, model)]
    # Random weights merge little at a threshold of 1: at the one that was found a quarter is left.
    found = {"threshold": rows[0]["threshold"]}
    metric = calibrate(model, [ids[:, : bench.long // 8]])
    ways: dict[str, Row] = {
        "threshold": found,
        "threshold, calibrated": {**found, "metric": metric},
    }
    ways |= {"threshold, fast": {**found, "merge": FAST}}
    ways |= {"kept=1/4, fast": {"kept": 0.25, "merge": FAST}}
    for name, way in ways.items():
        if bench.left() > 0:
            rows.append({"plan": name} | compress(bench, ids, plain, way, model))
    return rows


def judge(found: dict[str, list[Row]]) -> None:
    """Say which figures were reached."""
    for row in found.get("compressing", []):
        what = f"batch {row['batch']}, {row['plan']}, {row['metric']}: {row['share']:.0%}"
        verdict(f"compressing {what} of prefill, wanted 25 %", row["share"] <= 0.25)
    decoded = found.get("decoding", [])
    for row in decoded:
        if row["batch"] == decoded[0]["batch"] and row["cache"][:4] in ("kept", "thre"):
            what = f"{row['cache']} at batch {row['batch']}: {row['of full']:.2f} of full"
            verdict(f"{what}, wanted 1.5", row["of full"] >= 1.5)
    sizes = {row["cache"]: row["largest batch"] for row in found.get("largest", [])}
    for name in ("threshold 1/4", "threshold 1/8"):
        if sizes:
            what = f"{name}: batch {sizes[name]} fits, full {sizes['full']}"
            verdict(what, sizes[name] > sizes["full"])


def keep(bench: Bench) -> None:
    """Write what was found to the folder ``$OUT``, or where the other benchmarks write."""
    folder = Path(os.environ.get("OUT", OUT))
    folder.mkdir(parents=True, exist_ok=True)
    where = "cpu" if bench.tiny else torch.cuda.get_device_name()
    facts = {"device": where, "torch": torch.__version__, "tokens": bench.T}
    (folder / "gpu_llm.json").write_text(json.dumps({**facts, **bench.found}, indent=1) + "\n")


def main() -> None:
    """Each part, then the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", type=Path, help="folder of SmolLM2-135M-Instruct")
    which.add_argument("--shapes", choices=[*SHAPES][1:], help="random weights of these shapes")
    which.add_argument("--tiny", action="store_true", help="a toy on the CPU")
    parser.add_argument("--tokens", type=int, default=8064, help="of a context")
    parser.add_argument("--seconds", type=float, default=120, help="shared by the parts")
    parser.add_argument("--only", nargs="+", default=("",), help="parts, by how they begin")
    parser.add_argument("--batches", nargs="+", type=int, help="to decode; the first is judged")
    told = parser.parse_args()
    bench = Bench(told.model, told.seconds, told.shapes or "", told.tokens)
    bench.batches = tuple(told.batches or bench.batches)
    print(f"ready after {time.perf_counter() - bench.began:.0f} s", flush=True)
    decoding = Decoding(bench)
    parts: dict[str, tuple[Callable[[Bench], list[Row]], float]] = {
        "compressing": (compressing, 0.25),
        "stages, ms": (lambda bench: staged(bench, decoding), 0.3),
        "kernels, ms": (kernels, 0.35),
        "decoding": (lambda _: decoding.rows(), 0.7),
        "largest": (lambda _: decoding.largest(), 0.8),
        "shapes of 8B": (eight, 1.0),
    }
    for name, (part, share) in parts.items():
        if name.startswith(tuple(told.only)):
            bench.run(name, part, share)
        if name == "largest":
            decoding.made.clear()
    print()
    judge(bench.found)
    keep(bench)


if __name__ == "__main__":
    main()
