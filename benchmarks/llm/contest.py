"""Every way on every context, and where the rows are kept.

A row is a line of JSON: one way, one part kept, one context. The rows of a context are written at
once, and a later run does what is not there yet. Rows that other code made are not counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distinctkv.studies import llm_asking, llm_rivals
from distinctkv.studies.llm_asking import ask
from distinctkv.studies.llm_held import Context, Held, hold_by, keep, read
from distinctkv.studies.llm_kit import Kit, Task
from distinctkv.studies.llm_tasks import TASKS

from . import matching, presses, texts
from .way import Way, each

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FULL = "full"  # the way that keeps all
WIDE = 16  # ways asked at once, on a device that likes it


@dataclass(frozen=True, slots=True)
class Case:
    """A context by its task, its length in tokens and its seed."""

    task: str
    length: int
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """How a way did on a context: what it was to keep, what it kept, and the answers."""

    task: str
    length: int
    seed: int
    way: str
    part: float
    kept: float
    accuracy: float
    nll: float
    seconds: float  # to compress for all parts that were asked for, by the clock
    code: str

    @property
    def cell(self) -> tuple[str, int, int, str, float]:
        """What no two rows share."""
        return self.task, self.length, self.seed, self.way, self.part


def ways(variants: Mapping[str, Mapping[str, Any]]) -> list[Way]:
    """Ours with each of the named options, what we wrote in a few lines, and the presses."""
    return [
        *(Way(name, told(options), _ours(options)) for name, options in variants.items()),
        *simple(),
        matching.WAY,
        *presses.ways(),
    ]


def simple() -> list[Way]:
    """Tokens at random, and the rivals of the study that kvpress does not have."""
    notes = {
        "h2o": "4 sinks, half of the rest for the newest, half for the most attended to",
        "rkv": ".07 of the attention of 32 queries, less .93 of likeness to later keys",
    }
    scored = [Way(f"{n}, ours", note, _scored(llm_rivals.RIVALS[n])) for n, note in notes.items()]
    return [Way("random", "4 sinks", each(_at_random)), *scored]


def sizing(thresholds: Sequence[float], options: Mapping[str, Any]) -> list[Way]:
    """Ours at a threshold, whatever that keeps."""
    return [
        Way(f"threshold {at:g}", told(options), _ours({**options, "threshold": at}), 1, True)
        for at in thresholds
    ]


def told(options: Mapping[str, Any]) -> str:
    """Options in words."""
    return ", ".join(f"{name}={one}" for name, one in options.items()) or "as it is by default"


def _ours(options: Mapping[str, Any]) -> Callable[..., list[list[Held]]]:
    from distinctkv.hf import distinct_cache

    def hold(model: PreTrainedModel, context: Context, part: float) -> list[Held]:
        sized = {} if "threshold" in options else {"kept": part}
        return hold_by(distinct_cache(model, **sized, **options), context)

    return each(hold)


def _scored(score: Callable[..., torch.Tensor]) -> Callable[..., list[list[Held]]]:
    return each(lambda model, context, part: llm_rivals.kept_tokens(context, score, part))


def _at_random(model: PreTrainedModel, context: Context, part: float) -> list[Held]:
    return llm_rivals.kept_tokens(context, llm_rivals.at_random(int(context.ids.sum())), part)


def tasks() -> dict[str, Callable[[Kit], Task]]:
    """Those that are made, and those on texts that are here."""
    return {**TASKS, **texts.tasks()}


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    tokenizer: Any,  # noqa: ANN401
    case: Case,
    wanted: Mapping[Way, Sequence[float]],
    code: str,
) -> list[Row]:
    """Rows of a context for each way and part, and one for the full cache."""
    # A task's place in the alphabet is no part of its seed: tasks may come and go.
    name = int.from_bytes(hashlib.sha256(case.task.encode()).digest()[:4], "big")
    kit = Kit(tokenizer, case.length, np.random.default_rng([name, case.length, case.seed]))
    task = tasks()[case.task](kit)
    context = read(model, torch.tensor([task.ids], device=model.device))
    everything = keep(
        context, [torch.ones_like(one.keys[0, ..., 0], dtype=torch.bool) for one in context.layers]
    )
    helds, labels = [everything], [(FULL, 1.0, 0.0)]
    for way, parts in wanted.items():
        torch.manual_seed(case.seed)
        started = time.perf_counter()
        made = way.hold(model, context, parts)
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        taken = time.perf_counter() - started
        helds += made
        labels += [(way.name, part, taken) for part in parts]
    answers = []
    width = WIDE if model.device.type == "cuda" else 1
    for start in range(0, len(helds), width):
        answers += ask(model, helds[start : start + width], len(context), task.questions)
    total = len(context) * sum(one.keys.shape[1] for one in context.layers)
    return [
        Row(
            **asdict(case),
            way=name,
            part=part,
            kept=round(sum(layer.n_slots for layer in held) / total, 5),
            accuracy=fmean(answer.right for answer in answered),
            nll=round(fmean(answer.nll for answer in answered), 5),
            seconds=round(taken, 4),
            code=code,
        )
        for (name, part, taken), held, answered in zip(labels, helds, answers, strict=True)
    ]


def digest(*facts: str) -> str:
    """A short digest of the code that rows depend on, and of what else they do."""
    import distinctkv.hf

    here = Path(__file__).parent
    sources = [*Path(distinctkv.hf.__file__).parent.glob("**/*.py")]
    sources += Path(llm_asking.__file__).parent.glob("llm_*.py")
    sources += [here / name for name in ("contest.py", "matching.py", "presses.py", "texts.py")]
    made = hashlib.sha256(" ".join(facts).encode())
    for path in sorted(sources):
        made.update(path.read_bytes())
    return made.hexdigest()[:12]


def load(path: Path, code: str) -> list[Row]:
    """Rows of this code; a line that a crash cut short is passed over."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = Row(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        if row.code == code:
            rows[row.cell] = row
    return list(rows.values())


def append(path: Path, rows: Iterable[Row]) -> None:
    """All rows in one write, so that other processes can write to the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(row)) + "\n" for row in rows)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        # A cut line before ours must not swallow our first.
        os.write(file, ("\n" + text).encode())
    finally:
        os.close(file)


def missing(
    done: Sequence[Row], case: Case, all_ways: Sequence[Way], parts: Sequence[float]
) -> dict[Way, list[float]]:
    """What is left to do for a context."""
    there = {row.cell for row in done}

    def new(way: Way, part: float) -> bool:
        return (case.task, case.length, case.seed, way.name, part) not in there

    asked = {way: ([1.0] if way.sizes_itself else parts) for way in all_ways}
    left = {way: [part for part in some if new(way, part)] for way, some in asked.items()}
    return {way: some for way, some in left.items() if some}
