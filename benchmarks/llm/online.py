"""``python -m benchmarks.llm.online``: a log that never ends, read in chunks within little memory.

Each chunk attends to the slots of what came before. Printed are the nats of the tokens beside those
of a full cache, the part of the tokens that is held at the end, and the exponent by which slots
grow, means over streams.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Cache, DynamicCache

from distinctkv.hf import MergePolicy, distinct_cache

from ..common import stamp
from . import model as llm_model
from .fetch import get
from .kit import Kit
from .rows import append_lines
from .texts import log_lines, sentences

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 256
LINES = {"log": log_lines, "novel": sentences}
HELD, LOST = 0.10, 0.02  # the aim: a log in so many slots, and so many more nats


class Course(NamedTuple):
    """Nats of each token but those of the first chunk, and slots a head after each chunk."""

    nll: float
    slots: list[float]


class Setting(NamedTuple):
    """A threshold, the tokens of the window, and two of `MergePolicy`; 0 is off."""

    threshold: float
    recent: int
    importance: float
    horizon: float

    def cache(self, model: PreTrainedModel) -> Cache:
        """A new cache."""
        merge = MergePolicy(self.importance, self.horizon or None, attention_mean=False)
        return distinct_cache(model, threshold=self.threshold, recent=int(self.recent), merge=merge)


@torch.no_grad()
def follow(model: PreTrainedModel, ids: Tensor, cache: Cache, chunk: int = CHUNK) -> Course:
    """Read (1, T) tokens chunk by chunk."""
    lost, slots = [], []
    last: Tensor | None = None  # what the chunk before says of the first token of this one
    for part in ids.split(chunk, dim=1):
        logits = model(part, past_key_values=cache).logits[0].float()
        if last is not None:
            said = torch.cat((last[None], logits[:-1]))
            lost.append(cross_entropy(said, part[0], reduction="none"))
        last = logits[-1]
        summary = getattr(cache, "summary", None)
        slots.append(summary().kept * cache.get_seq_length() if summary else cache.get_seq_length())
    return Course(float(torch.cat(lost).mean()), slots)


def exponent(slots: Sequence[float]) -> float:
    """The power of the length by which slots grow, from the first chunk to the last.

    >>> round(exponent([10.0, 20.0, 30.0, 40.0]), 2)
    1.0
    """
    return log(slots[-1] / slots[0]) / log(len(slots))


def main() -> None:
    """Follow streams, full and in each setting; then a table."""
    args = _arguments()
    stamp("torch", "transformers")
    args.ends = time.time() + args.deadline
    args.out.unlink(missing_ok=True)
    cases = [(name, seed) for seed in range(args.contexts) for name in args.streams]
    if args.workers == 1:
        work(args, cases)
    else:
        spawn = multiprocessing.get_context("spawn")
        shares = [cases[start :: args.workers] for start in range(args.workers)]
        workers = [spawn.Process(target=work, args=(args, share)) for share in shares if share]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    print(table(load(args.out)))


def load(path: Path) -> list[dict[str, Any]]:
    """Rows that were written, if any."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line]


def work(args: argparse.Namespace, cases: Sequence[tuple[str, int]]) -> None:
    """Follow some streams; each is written when it is done."""
    torch.set_num_threads(1 if args.workers > 1 else torch.get_num_threads())
    model, tokenizer = llm_model.load(
        args.model or llm_model.find() or get(), args.device, args.dtype
    )
    for name, seed in cases:
        for row in courses(model, tokenizer, name, seed, args):
            append_lines(args.out, [json.dumps(row)])


def courses(
    model: PreTrainedModel,
    tokenizer: Any,  # noqa: ANN401
    name: str,
    seed: int,
    args: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    """One stream, whole and in each setting, until the time is over."""
    kit = Kit(tokenizer, args.length, np.random.default_rng(seed))
    tokens = sum(kit.fill(LINES[name](kit)), ())
    ids = torch.tensor([tokens], device=model.device)
    for chunk in args.chunk:
        full = follow(model, ids, DynamicCache(), chunk).nll
        for at in args.setting:
            if time.time() > args.ends:
                return
            setting = Setting(*at)
            mine = follow(model, ids, setting.cache(model), chunk)
            yield {
                "stream": name,
                "seed": seed,
                "chunk": chunk,
                **setting._asdict(),
                "tokens": len(tokens),
                "full": round(full, 5),
                "nll": round(mine.nll, 5),
                "slots": [round(one, 1) for one in mine.slots],
            }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the streams of each setting, and whether the aim is met."""
    names = ("stream", "chunk", *Setting._fields)
    lines = [
        "| stream | chunk | threshold | recent | importance | horizon | n | full nats "
        "| more | held | slots 1, 2, 4 .. chunks | exponent | log in 10 % within 2 % |",
        "|---" * 14 + "|",
    ]
    for key in sorted({tuple(row[name] for name in names) for row in rows}):
        mine = [row for row in rows if tuple(row[name] for name in names) == key]
        held = fmean(row["slots"][-1] / row["tokens"] for row in mine)
        more = sum(row["nll"] for row in mine) / sum(row["full"] for row in mine) - 1
        n = min(len(row["slots"]) for row in mine)
        places = [*(2**i - 1 for i in range(n.bit_length())), n - 1]
        grown = " ".join(f"{fmean(row['slots'][at] for row in mine):.0f}" for at in places)
        power = fmean(exponent(row["slots"]) for row in mine)
        met = "MET" if held <= HELD and more <= LOST else "MISSED"
        shown = " | ".join(map(str, key))
        full = fmean(row["full"] for row in mine)
        lines.append(
            f"| {shown} | {len(mine)} | {full:.3f} | {more:+.1%} | {held:.1%} | {grown} | "
            f"{power:.2f} | {met if key[0] == 'log' else ''} |"
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.online", description=__doc__)
    parser.add_argument("--contexts", type=int, default=1, help="streams of each kind")
    parser.add_argument("--streams", nargs="+", default=list(LINES), choices=list(LINES))
    parser.add_argument("--length", type=int, default=4096, help="in tokens")
    parser.add_argument("--chunk", type=int, nargs="+", default=[CHUNK])
    parser.add_argument(
        "--setting",
        type=lambda told: [float(one) for one in told.split(",")],
        nargs="+",
        default=[[1.0, 32, 0.0, 0.0], [2.0, 32, 0.0, 0.0]],
        help="threshold,recent,importance,horizon; 0 is off",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds; none begins after")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/bench/llm_online.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
