"""The cache inside a real language model, beside simple rivals, at the same number of tokens held.

SmolLM2-135M-Instruct reads a context of 512 tokens. Each cache holds a part of it, made without a
look at the questions, and the model answers six of them. Three contexts: a few facts said again
and again; facts hidden in a log of few distinct lines; and facts hidden in sentences that do not
repeat. A seed is a context. The paper has no such experiment, so there are no claims.

``python -m benchmarks.llm`` is the large form: more tasks and lengths, and the rivals of kvpress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import llm_model
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude, unmeasured
from .study import FULL, Progress, Scale, silent

if TYPE_CHECKING:
    from .llm_held import Context, Held

TITLE = "A language model with a smaller cache"
QUESTION = (
    "A language model reads 512 tokens and holds a quarter or an eighth of them. Which caches "
    "can still say what the text said, when it repeats itself and when it does not?"
)
LENGTH = 512
TASKS = {
    "facts": "16 facts, said again and again",
    "logs": "8 facts in a log of 24 distinct lines",
    "tale": "8 facts in sentences that do not repeat",
}
QUESTIONS = 6
PARTS = (0.25, 0.125)
SEEDS = 10  # the first ten of those asked for, and three in a quick run
OURS = {"ours": "Distinct slots (ours)", "careful": "Distinct slots, with care"}
CARE = "importance=0.25, horizon=512, attended=True"  # `CAREFUL`, in words
RIVALS = {
    "streaming": ("Newest tokens (StreamingLLM)", "4 sinks and the newest"),
    "random": ("At random", "4 sinks"),
    "keydiff": ("Unlike the mean key (KeyDiff)", "no settings"),
    "h2o": ("Most attended to (H2O)", "4 sinks, half of the rest for the newest"),
    "rkv": ("Attended to and not alike (like R-KV)", ".07 attention, .93 likeness, newest 32"),
}
MEASURES = ("accuracy", "nats", "kept", "bytes")


@dataclass(frozen=True, slots=True)
class Found:
    """What one cache did with one context: a number for each of the measures."""

    task: str
    way: str
    numbers: tuple[float, float, float, float]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "length": LENGTH,
        "questions": QUESTIONS,
        "parts": ", ".join(map(str, PARTS)),
        "seeds_used": n_seeds(scale),
        **llm_model.described(),
    }


def n_seeds(scale: Scale) -> int:
    """How many of the seeds are used."""
    return max(3, scale.of(SEEDS))


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every cache on every context."""
    started = perf_counter()
    lacking, folder = llm_model.lacking(), llm_model.find()
    if lacking or folder is None:
        return unmeasured("llm", settings(scale), seeds, lacking)
    model, tokenizer = llm_model.load(folder)
    used = tuple(seeds)[: n_seeds(scale)]
    cases = [(task, seed) for seed in used for task in TASKS]
    found: list[Found] = []
    for done, (task, seed) in enumerate(cases, start=1):
        found += measure(model, tokenizer, task, seed)
        progress(done, len(cases))
    return conclude(result(found, used, scale), perf_counter() - started)


def result(found: Sequence[Found], seeds: Sequence[int], scale: Scale) -> Result:
    """Rows and lines of what was found."""
    made = tuple(rows(found))
    return Result(
        study="llm",
        title=TITLE,
        question=QUESTION,
        reading=reading({(one.table, one.name): one for one in made}),
        rows=made,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(lines(made)),
        headings=dict(TASKS),
    )


def measure(model: Any, tokenizer: Any, task: str, seed: int) -> Iterator[Found]:  # noqa: ANN401
    """All caches on one context."""
    import numpy as np
    import torch

    from .llm_asking import ask
    from .llm_held import read
    from .llm_kit import Kit
    from .llm_tasks import TASKS as MAKERS

    place = list(TASKS).index(task)
    made = MAKERS[task](Kit(tokenizer, LENGTH, np.random.default_rng([seed, place])))
    context = read(model, torch.tensor([made.ids]))
    full = sum(one.keys.nbytes + one.values.nbytes for one in context.layers)
    n_heads = sum(one.keys.shape[1] for one in context.layers)
    for way, held, held_bytes in holders(model, context, seed):
        (answers,) = ask(model, [held], len(context), made.questions[:QUESTIONS])
        kept = sum(one.n_slots for one in held) / (len(context) * n_heads)
        right, lost = (fmean(getattr(one, name) for one in answers) for name in ("right", "nll"))
        size = kept * full if held_bytes is None else held_bytes
        yield Found(task, way, (right, lost, kept, float(size)))


def holders(
    model: Any,  # noqa: ANN401
    context: Context,
    seed: int,
) -> Iterator[tuple[str, list[Held], int | None]]:
    """Each cache by name, what it holds, and its bytes where they are more than what is held."""
    import torch

    from ..hf import CAREFUL, Care, distinct_cache
    from .llm_held import hold_by, keep
    from .llm_rivals import RIVALS as SCORES
    from .llm_rivals import at_random, kept_tokens

    heads = [one.keys[0, ..., 0] for one in context.layers]
    yield "full", keep(context, [torch.ones_like(one).bool() for one in heads]), None
    for part in PARTS:
        for name, care in (("ours", Care()), ("careful", CAREFUL)):
            cache = distinct_cache(model, kept=part, care=care)
            yield at(name, part), hold_by(cache, context), cache.nbytes
        for name in RIVALS:
            score = at_random(seed) if name == "random" else SCORES[name]
            yield at(name, part), kept_tokens(context, score, part), None
    cache = distinct_cache(model, threshold=1.0)
    yield "threshold", hold_by(cache, context), cache.nbytes


def at(name: str, part: float) -> str:
    """The name of a row.

    >>> at("ours", 0.125)
    'ours_8'
    """
    return f"{name}_{round(1 / part)}"


def rows(found: Sequence[Found]) -> Iterator[Row]:
    """Means over the contexts of each task."""
    labels: dict[str, tuple[str, str, Role]] = {"full": ("Full cache", "every token", "paper")}
    for part in PARTS:
        share = f"1/{round(1 / part)}"
        for (name, label), note in zip(OURS.items(), ("", f"; {CARE}"), strict=True):
            labels[at(name, part)] = (f"{label}, {share}", f"kept={part:g}{note}", "cache")
        for name, (label, note) in RIVALS.items():
            labels[at(name, part)] = (f"{label}, {share}", f"kept={part:g}; {note}", "added")
    labels["threshold"] = ("Distinct slots, sized by themselves", "threshold=1", "cache")
    for task in TASKS:
        for name, (label, setting, role) in labels.items():
            mine = [one.numbers for one in found if (one.task, one.way) == (task, name)]
            measures = {
                measure: Measure.of(column)
                for measure, column in zip(MEASURES, zip(*mine, strict=True), strict=True)
            }
            yield Row(name, label, measures, setting, role, table=task)


def lines(made: Sequence[Row]) -> Iterator[Series]:
    """Accuracy against bytes, a line for each cache and task, from the smallest."""
    for task in TASKS:
        found = {row.name: row for row in made if row.table == task}
        for name, label in {**OURS, **{name: label for name, (label, _) in RIVALS.items()}}.items():
            along = [found[at(name, part)].measures for part in sorted(PARTS)]
            yield Series(
                f"{task}/{name}",
                label,
                tuple(one["bytes"].mean for one in along),
                tuple(one["accuracy"].mean for one in along),
                tuple(one["accuracy"].sd for one in along),
            )


def reading(found: Mapping[tuple[str, str], Row]) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""

    def mean(task: str, name: str, measure: str = "accuracy") -> float:
        return found[task, name].measures[measure].mean

    def beside(task: str, part: float) -> str:
        best = max(RIVALS, key=lambda name: mean(task, at(name, part)))
        return (
            f"{mean(task, at('ours', part)):.2f}, with care {mean(task, at('careful', part)):.2f}, "
            f"against {mean(task, at(best, part)):.2f} for the best rival ({RIVALS[best][0]})"
        )

    few, fewer = PARTS
    sized = "; ".join(
        f"{task}: {mean(task, 'threshold', 'kept'):.0%} at {mean(task, 'threshold'):.2f}, full "
        f"{mean(task, 'full'):.2f}"
        for task in TASKS
    )
    ours = at("ours", few)
    beyond = mean("facts", ours, "bytes") - mean("facts", ours, "kept") * mean(
        "facts", "full", "bytes"
    )
    n = found["facts", "full"].measures["accuracy"].n
    return (
        f"At a quarter of the tokens: facts {beside('facts', few)}; logs {beside('logs', few)}; "
        f"tale {beside('tale', few)}. At an eighth: facts {beside('facts', fewer)}; logs "
        f"{beside('logs', fewer)}; tale {beside('tale', fewer)}. The best rival is picked "
        "after the fact, which favours it.",
        f"With threshold 1 the text decides how much is held. Kept, and accuracy: {sized}.",
        f"Bytes of ours are all that the cache holds: {beyond / 1e6:.1f} MB beside keys and "
        "values. Most of that is the metric that it measures on the context's own queries. It does "
        "not grow, so it is much beside 512 tokens and little beside 8,000; with a metric made "
        "once by `calibrate` it is gone. Rivals are charged for keys and values alone.",
        f"{n} contexts of each kind, one small model, 512 tokens: differences of less than about "
        f"{1 / n**0.5:.1f} are noise. Rivals here are small; `python -m benchmarks.llm` has those "
        "of kvpress, longer contexts, real texts and intervals.",
    )
