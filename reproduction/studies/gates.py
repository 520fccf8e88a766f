"""The paper's learned gates (section 3.1.4), and what decides whether one learns.

Keys of an item are alike (noise 0), 64 items come four times each, and 64 tokens are kept. Gates
are trained on the recall loss alone, as in the paper. Then we start from gates that fail, change
the loss (`gating.by_chance`) and the streams (`gating.uneven`), and see what it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING

from ..data import RecallTask
from .device import Told, n_seeds, result_of
from .gates_words import reading
from .result import Measure, Result, Role, Row, Setting
from .study import FULL, Progress, Scale, silent

if TYPE_CHECKING:
    from distinctkv.nn.gates import Gate

TITLE = "Whether the allocation can be learned"
QUESTION = (
    "A gate decides which 64 of 256 tokens are kept. Trained on recall alone, does it find the "
    "first occurrence of each item, and what does it take: few parameters, or the right signal?"
)
HEADINGS = {
    "gates": "The paper's gates on its loss: recall before training and after it",
    "noise": "Repeats that differ: recall after training on the paper's loss",
    "recipe": "A large gate that fails at the start: which change makes it learn",
}
TASK = RecallTask(noise=0.0)
STEPS, LONGER = 150, 300
ASKED = 96  # streams to measure on
NOISES = (0.1, 0.5)
Make = Callable[[], "Gate"]


@dataclass(frozen=True, slots=True)
class Case:
    """A gate, the loss and the streams it is trained on, and for how long."""

    name: str
    label: str
    gate: str
    loss: str = "soft"
    streams: str = "even"
    steps: int = STEPS
    role: Role = "added"
    table: str = "gates"
    noise: float = 0.0


NOISY: tuple[tuple[str, str, Role], ...] = (
    ("two", "Two parameters", "cache"),
    ("both", "MLP on key and novelty", "added"),
    ("key", "MLP on the key alone", "paper"),
)
CASES = (
    Case("rule", "Rule: novelty above .1", "steep", steps=0, role="paper"),
    Case("mlp", "MLP on key and novelty", "both", role="paper"),
    Case("two", "Two parameters", "two", role="cache"),
    Case("distilled", "MLP, distilled to the rule", "both", loss="to_the_rule", role="paper"),
    Case("key", "MLP on the key alone", "key", role="paper"),
    Case("flat", "Two parameters, started at a = .1", "flat"),
    Case("wrong", "Two parameters, started at a = -1", "wrong"),
    *(
        Case(f"{gate}_{noise:g}".replace(".", ""), f"{label}, noise {noise}", gate, role=role,
             table="noise", noise=noise)
        for gate, label, role in NOISY
        for noise in NOISES
    ),
    *(
        Case(name, label, gate, loss, streams, LONGER, "added", "recipe")
        for name, label, gate, loss, streams in (
            ("neither", "Neither", "both", "soft", "even"),
            ("uneven", "Uneven streams", "both", "soft", "uneven"),
            ("chance", "Kept by chance", "both", "by_chance", "even"),
            ("recipe", "Both", "both", "by_chance", "uneven"),
            ("flipped", "Both, told 1 - novelty", "flipped", "by_chance", "uneven"),
            ("turned_soft", "Uneven streams, from a = -1", "wrong", "soft", "uneven"),
            ("turned", "Both, from a = -1", "wrong", "by_chance", "uneven"),
            ("unlearned", "Both, taught the opposite first", "opposite", "by_chance", "uneven"),
        )
    ),
)  # fmt: skip


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    fixed: dict[str, Setting] = {
        "scale": scale.name,
        **asdict(TASK),
        "steps": STEPS,
        "steps_of_the_recipe": LONGER,
        "streams_to_measure": ASKED,
        "seeds_used": n_seeds(scale),
        "noise_of_repeats": ", ".join(map(str, NOISES)),
        "torch": "present" if find_spec("torch") else "absent",
    }
    if find_spec("torch") is None:
        return fixed
    from distinctkv.nn.fitting import fit

    from . import gating

    return {
        **fixed,
        "kept": gating.KEPT,
        "streams_per_step": gating.STREAMS,
        "queries_per_stream": gating.QUERIES,
        "learning_rate": signature(fit).parameters["rate"].default,
        "read_theta": gating.THETA,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every gate from every seed."""

    def tell(used: tuple[int, ...]) -> Told:
        rows = []
        for done, case in enumerate(CASES, start=1):
            rows.append(row(case, [measure(case, seed) for seed in used]))
            progress(done, len(CASES))
        return Told(rows, reading({one.name: one.measures for one in rows}), HEADINGS)

    return result_of("gates", seeds, scale, tell)


def measure(case: Case, seed: int) -> tuple[float, float, float]:
    """Recall before and after training, and tokens with a gate above .5."""
    import torch

    from . import gating

    task = RecallTask(noise=case.noise)
    torch.manual_seed(seed)
    gate = made(case.gate)
    if case.gate == "opposite":
        gating.trained(
            gate, gating.against_the_rule, task, seed + 1000, STEPS, gating.even, asked=1
        )
    loss, draw = getattr(gating, case.loss), getattr(gating, case.streams)
    found = gating.trained(gate, loss, task, seed, case.steps, draw, ASKED)
    return found.start.recall, found.end.recall, found.end.kept


def made(name: str) -> Gate:
    """A fresh gate."""
    from distinctkv.nn.gates import NoveltyGate, SignedGate
    from distinctkv.nn.zoo import KeyGate, KeyNoveltyGate

    from .gating import APART, Flipped

    makes: Mapping[str, Make] = {
        "steep": lambda: NoveltyGate(slope=1000.0, threshold=APART),
        "two": NoveltyGate,
        "flat": lambda: NoveltyGate(slope=0.1, threshold=0.1),
        "wrong": lambda: SignedGate(slope=-1.0, threshold=0.5),
        "key": lambda: KeyGate(TASK.width),
        "both": lambda: KeyNoveltyGate(TASK.width),
        "opposite": lambda: KeyNoveltyGate(TASK.width),
        "flipped": lambda: Flipped(TASK.width),
    }
    return makes[name]()


def row(case: Case, found: Sequence[tuple[float, float, float]]) -> Row:
    """Means over seeds."""
    names = ("before", "recall", "kept")
    measures = {
        name: Measure.of(column)
        for name, column in zip(names, zip(*found, strict=True), strict=True)
    }
    setting = f"{case.steps} steps on {case.loss.replace('_', ' ')}, {case.streams} streams"
    return Row(case.name, case.label, measures, setting, case.role, case.table)
