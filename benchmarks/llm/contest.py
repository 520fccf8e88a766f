"""Every way on every context."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from . import ours, texts
from .kit import Kit, Task
from .kv_states import Context, Held, keep, read
from .questions import Answer, ask
from .rows import FULL, Case, Row
from .tasks import TASKS
from .way import Way

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WAITING = 3 << 27  # numbers of keys and values that may wait to be asked, on a device,
LOGITS = 1 << 28  # and logits that may be there at once when they are
ASK_ONE_BY_ONE = ("cpu",)  # where memory is short and launches cost nothing

Label = tuple[str, float, float]  # way, part, seconds
Found = TypeVar("Found")


def tasks() -> dict[str, Callable[[Kit], Task]]:
    """Those that are made, and those on texts that are here."""
    return {**TASKS, **texts.tasks()}


def task_of(tokenizer: Any, case: Case) -> Task:  # noqa: ANN401
    """The context and the questions of a case."""
    # A task's place in the alphabet is no part of its seed: tasks may come and go.
    name = int.from_bytes(hashlib.sha256(case.task.encode()).digest()[:4], "big")
    kit = Kit(tokenizer, case.length, np.random.default_rng([name, case.length, case.seed]))
    return tasks()[case.task](kit)


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    tokenizer: Any,  # noqa: ANN401
    case: Case,
    wanted: Mapping[Way, Sequence[float]],
    code: str,
    room: float = 1.0,
) -> list[Row]:
    """Rows of a context for each way and part, and one for the full cache.

    With less ``room`` fewer caches are held at once.
    """
    task = task_of(tokenizer, case)
    context = read(model, torch.tensor([task.ids], device=model.device))
    everything = keep(
        context, [torch.ones_like(one.keys[0, ..., 0], dtype=torch.bool) for one in context.layers]
    )
    waiting, rows = [((FULL, 1.0, 0.0), everything)], []
    del everything
    for way, parts in wanted.items():
        if not way.ours:
            ours.prepare.cache_clear()  # no other way needs it
        made = fits(lambda way=way, parts=parts: _made(model, context, way, parts, case.seed))
        if made is None:  # asked and let go, the others may leave enough memory
            rows += _asked(model, context, task, waiting, room)
            waiting = []
            ours.prepare.cache_clear()
            made = _made(model, context, way, parts, case.seed)
        waiting += made
        size = sum(one.keys.numel() * 2 for _, held in waiting for one in held)
        if model.device.type in ASK_ONE_BY_ONE or size > room * WAITING:
            rows += _asked(model, context, task, waiting, room)
            waiting = []
        del made
    rows += _asked(model, context, task, waiting, room)
    ours.prepare.cache_clear()  # or two contexts are held when the next is read
    return [
        Row(
            **asdict(case),
            way=name,
            part=part,
            kept=round(kept, 5),
            accuracy=fmean(answer.right for answer in answers),
            nll=round(fmean(answer.nll for answer in answers), 5),
            seconds=round(taken, 4),
            code=code,
        )
        for (name, part, taken), kept, answers in rows
    ]


def fits(go: Callable[[], Found]) -> Found | None:
    """What it makes, or nothing if there is no memory for it."""
    try:
        return go()
    except torch.OutOfMemoryError:
        pass  # only behind this line are the tensors of the frames that failed let go
    torch.cuda.empty_cache()
    return None


def _made(
    model: PreTrainedModel, context: Context, way: Way, parts: Sequence[float], seed: int
) -> list[tuple[Label, list[Held]]]:
    """What a way holds, for each part, with its time."""
    torch.manual_seed(seed)
    _wait(model)
    started = time.perf_counter()
    made = way.hold(model, context, parts)
    _wait(model)
    taken = time.perf_counter() - started
    return [((way.name, part, taken), held) for part, held in zip(parts, made, strict=True)]


def _wait(model: PreTrainedModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def _asked(
    model: PreTrainedModel,
    context: Context,
    task: Task,
    waiting: Iterable[tuple[Label, list[Held]]],
    room: float,
) -> list[tuple[Label, float, list[Answer]]]:
    """Ask as many at once as there is memory for, those of like width together."""
    total = len(context) * sum(one.keys.shape[1] for one in context.layers)
    heads = model.config.num_attention_heads
    tokens = len(task.questions) * max(len(cue) + len(said) for cue, said in task.questions)

    def width(held: Sequence[Held]) -> int:
        return max(one.keys.shape[1] for one in held)

    found = []
    left = sorted(waiting, key=lambda one: width(one[1]))
    most = 1 if model.device.type in ASK_ONE_BY_ONE else len(left)
    while left:
        n = min(most, len(left))
        while n > 1 and n * heads * tokens * width(left[n - 1][1]) > room * LOGITS:
            n -= 1
        helds = [held for _, held in left[:n]]
        said = fits(lambda helds=helds: _answers(model, helds, len(context), task))
        if said is None and n > 1:
            most = n // 2
            continue
        seen, answers = said or _answers(model, helds, len(context), task)
        parts = zip(left[:n], seen, answers, strict=True)
        found += [(label, n_seen / total, some) for (label, _), n_seen, some in parts]
        left = left[n:]
    return found


def _answers(
    model: PreTrainedModel, helds: Sequence[Sequence[Held]], start: int, task: Task
) -> tuple[list[int], list[list[Answer]]]:
    """Slots that can be seen, and answers."""
    biases = [torch.cat([one.bias.flatten() for one in held]) for held in helds]
    seen = torch.stack([(bias > -inf).sum() for bias in biases])
    answers = ask(model, helds, start, task.questions)
    return seen.tolist(), answers
