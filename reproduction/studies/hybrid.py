"""The cache beside a state-space backbone (section 3.1.5): recall and a count in one model.

24 items come three times each; each token also bears a mark, with a frequency that differs from
stream to stream. At the end the class of every item is asked for, and which part of the tokens was
marked. The paper leaves open the classes (8), the noise (.1), tau (.4) and the training. All models
of a seed are trained side by side on the same streams. The models are in `counting_models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count

from ..data import RecallTask
from .device import Told, device, n_seeds, result_of
from .recall import compared
from .result import Measure, Result, Role, Row, Setting
from .study import FULL, Progress, Scale, silent

TITLE = "The cache beside a state-space model"
QUESTION = (
    "A stream of 72 tokens names 24 items, and marks some tokens. Which models can tell both the "
    "class of an item and how many tokens were marked, and how much do they hold?"
)
HEADINGS = {
    "models": "Recall, R² of the count, and what is held",
    "controls": "What the state-space model has learned of recall",
}
TASK = RecallTask(n_items=24, repeats=3, n_classes=8)
STATE = 48  # numbers in the backbone
TAU = 0.4
FEATURES = 120  # with which a matrix has the bytes of 24 slots
STREAMS = 32  # in a step
STEPS = 400
RATE = 3e-3
WEIGHT = 10.0  # of the squared error of the count
ASKED = 500  # streams to measure on
COUNTED = 0.95  # R² above which a model counts
MEASURES = ("recall", "R²", "slots", "bytes")


@dataclass(frozen=True, slots=True)
class Case:
    """A row; its model has the same name."""

    name: str
    label: str
    setting: str
    role: Role = "added"


CASES = (
    Case("ssm", "SSM only", f"{STATE} fading sums", "paper"),
    Case("attention", "Attention only", "keeps every token", "paper"),
    Case("hybrid", "SSM + distinct items (ours)", f"tau {TAU}; {STATE} sums beside", "cache"),
    Case("alone", "Matrix state alone", "33 × 16, for both tasks"),
    Case("matrix", "SSM + matrix state", f"32 × 8; {STATE} sums beside"),
    Case("delta", "SSM + delta rule", f"32 × 8, learned rate; {STATE} sums beside"),
    Case("waves", "SSM + matrix on cosines", f"{FEATURES} × 8; {STATE} sums beside"),
)
CONTROLS = (
    Case("guess", "A guess", "the commonest class of the stream"),
    Case("every", "SSM only, as above", "trained on every item of a stream"),
    Case("once", "SSM only, asked once", "trained on one item of a stream"),
    Case("level", "SSM only, level classes", "every class has three items"),
)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        **asdict(TASK),
        "state": STATE,
        "tau": TAU,
        "steps": STEPS,
        "streams_per_step": STREAMS,
        "learning_rate": RATE,
        "weight_of_the_count": WEIGHT,
        "streams_to_measure": ASKED,
        "seeds_used": n_seeds(scale),
        "device": device(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed."""
    steps = count(1)

    def tell(used: tuple[int, ...]) -> Told:
        found = [
            measure(seed, lambda: progress(next(steps), STEPS * len(used)))  # one tick a step
            for seed in used
        ]
        rows = [row(case, "models", found) for case in CASES]
        rows += [row(case, "controls", found) for case in CONTROLS]
        return Told(rows, reading({one.name: one for one in rows}), HEADINGS)

    return result_of("hybrid", seeds, scale, tell)


def measure(seed: int, tick: Callable[[], None]) -> Mapping[str, tuple[float, ...]]:
    """What each model scores after training from one seed, and what a guess does."""
    import numpy as np
    import torch

    from . import counting, counting_models

    where = device()
    torch.manual_seed(seed)
    models = {name: model.to(where) for name, model in counting_models.made().items()}
    counting.train(models, seed, STEPS, where, tick)
    rng = np.random.default_rng((seed, 1))
    batch = counting.draw(rng, ASKED, where)
    level = batch.levelled(rng)
    scores = {
        name: counting.score(model, level if name == "level" else batch)
        for name, model in models.items()
    }
    return {**scores, "every": scores["ssm"], "guess": (counting.guessed(batch),)}


def row(case: Case, table: str, found: Sequence[Mapping[str, tuple[float, ...]]]) -> Row:
    """Means over seeds; of the controls only recall is of interest."""
    names = MEASURES if table == "models" else MEASURES[:1]
    measures = {
        name: Measure.of([one[case.name][place] for one in found])
        for place, name in enumerate(names)
    }
    return Row(case.name, case.label, measures, case.setting, case.role, table)


def reading(rows: Mapping[str, Row]) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""

    def mean(name: str, measure: str = "recall") -> float:
        return rows[name].measures[measure].mean

    def size(name: str) -> str:
        return f"{mean(name, 'bytes'):,.0f} bytes"

    return (
        f"Beside the backbone the cache recalls {mean('hybrid'):.3f} from "
        f"{mean('hybrid', 'slots'):.1f} slots, attention {mean('attention'):.3f} from "
        f"{mean('attention', 'slots'):.0f} tokens. {_of_counting(rows)}",
        f"The state-space model alone recalls {mean('ssm'):.3f}; the paper has .14. One who says "
        f"the commonest class of the stream is right in {mean('guess'):.3f}, and "
        f"{LIKE_A_GUESS[compared(rows['ssm'], rows['guess'])]}. Asked for one item a stream it "
        f"comes to {mean('once'):.3f} in {STEPS} steps; where all classes are equally common, to "
        f"{mean('level'):.3f}, and chance is {1 / TASK.n_classes:.3f}.",
        "Its state adds up what it sees, and does not bind a class to a key. A matrix, the sum of "
        "products, does, and is no less a state-space model. Alone, with "
        f"{size('alone')} for both tasks, it recalls {mean('alone'):.3f}; beside the backbone "
        f"{mean('matrix'):.3f}, and by the delta rule {mean('delta'):.3f}, in {size('delta')}. "
        f"On {FEATURES} cosines, {size('waves')} to the hybrid's {size('hybrid')}, it recalls "
        f"{mean('waves'):.3f}, {compared(rows['waves'], rows['hybrid'])} the hybrid.",
        _of_the_middle(rows),
        f"The paper counts the hybrid's slots and leaves out the {STATE} numbers of its backbone, "
        f"which it counts for the SSM alone. Bytes have both. A slot has a key and a class in "
        f"{4 * (TASK.width + TASK.n_classes)} bytes.",
    )


# What a recall says, by how it compares with that of a guess.
LIKE_A_GUESS = {
    "as much as": "that is what the model learns if it is asked for every item: no recall",
    "less than": "the model, asked for every item, has not learned as much as that",
    "more than": "the model, asked for every item, knows more than that",
}


def _of_counting(rows: Mapping[str, Row]) -> str:
    counts = {case.name: rows[case.name].measures["R²"].mean for case in CASES}
    worst = min(counts, key=lambda name: counts[name])
    if counts[worst] > COUNTED:
        return f"Every model here counts: no R² is below {counts[worst]:.3f}."
    return f"Not every model counts: the R² of {rows[worst].label} is {counts[worst]:.3f}."


def _of_the_middle(rows: Mapping[str, Row]) -> str:
    """Whether the hybrid recalls as attention does, in fewer bytes, where the SSM does not."""
    size = {name: rows[name].measures["bytes"].mean for name in ("attention", "hybrid", "waves")}
    lacking = [
        words
        for words, lacks in (
            ("recalls no more than the SSM alone", _beside(rows, "ssm") != "more than"),
            ("recalls less than attention", _beside(rows, "attention") == "less than"),
            ("holds no less than attention", size["hybrid"] >= size["attention"]),
        )
        if lacks
    ]
    if lacking:
        return f"A middle ground does not show here: the hybrid {' and '.join(lacking)}."
    too = "is on it, too" if _beside(rows, "waves") != "more than" else "recalls less"
    return (
        "So the middle ground is there, between attention and a state that cannot bind; a matrix "
        f"of {size['waves']:,.0f} bytes {too}. The cache did not have to be given its size."
    )


def _beside(rows: Mapping[str, Row], other: str) -> str:
    return compared(rows["hybrid"], rows[other])
