"""The paper's learned gates (section 3.1.4), and what decides whether one learns.

A gate gives every token a weight g in (0, 1), and the 64 tokens with the largest g are kept. A
stream has 64 items, four times each; repeats of an item are identical (noise 0). The paper's loss
is that of a soft read, with ``log g`` on the logits, and a penalty on the sum of g. We also vary
the loss (`sampled_loss`), the streams of the training (`uneven`) and the gate at the start, and
train the parametrisations that the paper names and leaves open.

The last table trains the gate inside a layer of a language model (`nn.DistinctAttention`), on
sequences of 8 items. The model is then read on the paper's stream, 64 items four times each, with
hard slots: a token opens one where its novelty is above the threshold that the gate has learned, or
where another gate is above 1/2.
"""

# B streams, L tokens, Q queries, D key size, C classes, M tokens kept

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from inspect import signature
from itertools import count

import numpy as np
import torch
from torch import Tensor

from distinctkv.nn import DistinctAttention, Heads, HybridLM, Mamba2, Reading
from distinctkv.nn.gates import (
    ContextGate,
    Fit,
    Gate,
    GumbelGate,
    KeyGate,
    KeyNoveltyGate,
    MetricGate,
    NoveltyGate,
    Probe,
    SignedGate,
    StraightThrough,
    SurpriseGate,
    distillation,
    fit,
    rule_loss,
    task_loss,
)
from distinctkv.nn.soft import budget_penalty
from distinctkv.nn.train import Ramp
from distinctkv.nn.train import recall as recall_of
from distinctkv.nn.train import train as train_model
from distinctkv.policy import Concentration
from distinctkv.rule import unit

from ..data import SILENT, Episode, MQARTask, RecallTask, occurrences
from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Outcome, Scale, n_seeds, run_training, silent

TITLE = "Whether the allocation can be learned"
QUESTION = (
    "A gate decides which 64 of 256 tokens are kept. Trained on recall alone, does it find the "
    "first occurrence of each item, and what does it take: few parameters, or the right signal?"
)
HEADINGS = {
    "gates": "The paper's gates on its loss: recall before training and after it",
    "noise": "Repeats that differ: recall after training on the paper's loss",
    "recipe": "A large gate that fails at the start: which change makes it learn",
    "other": "Parametrisations that the paper names and does not test",
    "layer": "Inside a layer of a language model: recall, slots and tau on the paper's stream",
}
TASK = RecallTask(noise=0.0)
STEPS, RECIPE_STEPS, OTHER_STEPS = 150, 300, 75
TEST_STREAMS = 96
NOISES = (0.1, 0.5)
KEPT = 64  # M, as many as there are items
STREAMS, QUERIES = 8, 64  # of a training step
THETA = 0.1  # temperature of the read
TAU = 0.1  # of the rule
FLOOR = 0.1  # weight of a random answer, so that the loss of a lost item is finite


class FlippedGate(KeyNoveltyGate):
    """The large gate with 1 - novelty as its feature."""

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """From the key, and from 1 - novelty."""
        return super().logit(1 - novelty, hidden)


GATES: Mapping[str, Callable[[], Gate]] = {
    "steep": lambda: NoveltyGate(slope=1000.0, threshold=TAU),
    "two": NoveltyGate,
    "flat": lambda: NoveltyGate(slope=0.1, threshold=0.1),
    "wrong": lambda: SignedGate(slope=-1.0, threshold=0.5),
    "key": lambda: KeyGate(TASK.width),
    "both": lambda: KeyNoveltyGate(TASK.width),
    "flipped": lambda: FlippedGate(TASK.width),
    "metric": lambda: MetricGate(TASK.width),
    "context": lambda: ContextGate(TASK.width),
    "straight": lambda: StraightThrough(NoveltyGate()),
    "gumbel": lambda: GumbelGate(NoveltyGate()),
    "surprise": lambda: SurpriseGate(TASK.width),
}


@dataclass(frozen=True, slots=True)
class Training:
    """A row: a gate, the loss and the streams it is trained on, and for how long."""

    name: str
    label: str
    gate: str
    loss: str = "soft"
    streams: str = "even"
    steps: int = STEPS
    role: Role = "added"
    table: str = "gates"
    noise: float = 0.0
    opposite_first: bool = False  # pre-trained to keep what the rule drops
    full: bool = False  # left out of a quick run


NOISY_GATES: tuple[tuple[str, str, Role], ...] = (
    ("two", "Two parameters", "cache"),
    ("both", "MLP on key and novelty", "added"),
    ("key", "MLP on the key alone", "paper"),
)
FULL_ONLY = ("flipped", "turned_soft", "turned", "unlearned")
TRAININGS = (
    Training("rule", "Rule: novelty above .1", "steep", steps=0, role="paper"),
    Training("mlp", "MLP on key and novelty", "both", role="paper"),
    Training("two", "Two parameters", "two", role="cache"),
    Training("distilled", "MLP, distilled to the rule", "both", loss="to the rule", role="paper"),
    Training("key", "MLP on the key alone", "key", role="paper"),
    Training("flat", "Two parameters, started at a = .1", "flat"),
    Training("wrong", "Two parameters, started at a = -1", "wrong"),
    *(
        Training(f"{gate}_{noise:g}".replace(".", ""), f"{label}, noise {noise}", gate, role=role,
                 table="noise", noise=noise)
        for gate, label, role in NOISY_GATES
        for noise in NOISES
    ),
    *(
        Training(name, label, gate, loss, streams, RECIPE_STEPS, "added", "recipe",
                 opposite_first=name == "unlearned", full=name in FULL_ONLY)
        for name, label, gate, loss, streams in (
            ("neither", "Neither", "both", "soft", "even"),
            ("uneven", "Uneven streams", "both", "soft", "uneven"),
            ("chance", "Kept by chance", "both", "by chance", "even"),
            ("recipe", "Both", "both", "by chance", "uneven"),
            ("flipped", "Both, told 1 - novelty", "flipped", "by chance", "uneven"),
            ("turned_soft", "Uneven streams, from a = -1", "wrong", "soft", "uneven"),
            ("turned", "Both, from a = -1", "wrong", "by chance", "uneven"),
            ("unlearned", "Both, taught the opposite first", "both", "by chance", "uneven"),
        )
    ),
    *(
        Training(name, label, name, steps=OTHER_STEPS, table="other")
        for name, label in (
            ("metric", "A learned metric, two parameters"),
            ("context", "A network makes the two parameters"),
            ("straight", "Two parameters, straight through"),
            ("gumbel", "Two parameters, Gumbel noise"),
            ("surprise", "Linear in key and novelty"),
        )
    ),
)  # fmt: skip


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        **asdict(TASK),
        "steps": STEPS,
        "steps_of_the_recipe": RECIPE_STEPS,
        "streams_to_measure": TEST_STREAMS,
        "seeds_used": n_seeds(scale),
        "seeds_of_added_rows": n_seeds(scale, added=True),
        "noise_of_repeats": ", ".join(map(str, NOISES)),
        "kept": KEPT,
        "streams_per_step": STREAMS,
        "queries_per_stream": QUERIES,
        "learning_rate": signature(fit).parameters["rate"].default,
        "read_theta": THETA,
        "steps_of_other_gates": OTHER_STEPS,
        "steps_in_a_layer": LAYER_STEPS,
        "seeds_in_a_layer": n_layer_seeds(scale),
        "budget_in_a_layer": LAYER_BUDGET,
        "tau_of_the_rule_in_a_layer": LAYER_TAU,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every gate from every seed."""
    trainings = [one for one in TRAININGS if scale.part == 1 or not one.full]
    absent = [f"{one.table}.{one.name}." for one in TRAININGS if one not in trainings]

    def measure_all(used: tuple[int, ...]) -> Outcome:
        few = used[: n_seeds(scale, added=True)]
        runs = [
            (seed, training)
            for seed in used
            for training in sorted(trainings, key=lambda one: (one.noise, one.streams))
            if training.role != "added" or seed in few
        ]
        total = len(runs) + len(LAYERS)
        found: dict[str, list[tuple[float, float, float]]] = {one.name: [] for one in trainings}
        for done, (seed, training) in enumerate(runs, start=1):
            found[training.name].append(measure(training, seed))
            progress(done, total)
        rows = [row(training, found[training.name]) for training in trainings]
        for done, (name, (label, role, setting, make)) in enumerate(LAYERS.items(), start=1):
            layers = [measure_layer(make, seed) for seed in used[: n_layer_seeds(scale)]]
            columns = zip(("recall", "slots", "tau"), zip(*layers, strict=True), strict=True)
            # Only the gate of two parameters has a threshold.
            measures = {
                word: Measure.of(column) for word, column in columns if column[0] == column[0]
            }
            rows.append(Row(name, label, measures, setting, role, "layer"))
            progress(len(runs) + done, total)
        words = paragraphs("gates", rows, absent, other_steps=OTHER_STEPS, layer_steps=LAYER_STEPS)
        return Outcome(rows, words, HEADINGS)

    return run_training("gates", seeds, scale, measure_all)


def measure(training: Training, seed: int) -> tuple[float, float, float]:
    """Recall before and after training, and the number of tokens with g above .5."""
    task = RecallTask(noise=training.noise)
    torch.manual_seed(seed)
    gate = GATES[training.gate]()
    if training.opposite_first:
        train(gate, opposite_loss, task, seed + 1000, STEPS, even, n_test=1)
    loss, draw = LOSSES[training.loss], DRAWS[training.streams]
    found = train(gate, loss, task, seed, training.steps, draw, TEST_STREAMS)
    return found.start.recall, found.end.recall, found.end.kept


def row(training: Training, found: Sequence[tuple[float, float, float]]) -> Row:
    """Means over seeds."""
    names = ("before", "recall", "kept")
    columns = zip(*found, strict=True)
    measures = {name: Measure.of(column) for name, column in zip(names, columns, strict=True)}
    measures["slots"] = Measure(float(KEPT), 0.0, len(found))  # the tokens with the largest g
    setting = f"{training.steps} steps on {training.loss}, {training.streams} streams"
    return Row(training.name, training.label, measures, setting, training.role, training.table)


# Streams


def even(rng: np.random.Generator, task: RecallTask) -> Episode:
    """A stream of the task: every item occurs equally often."""
    return task.draw(rng, QUERIES)


def uneven(rng: np.random.Generator, task: RecallTask) -> Episode:
    """A stream of the same length with half to twice as many items of unequal frequency."""
    n_items = int(rng.integers(task.n_items // 2, 2 * task.n_items + 1))
    weights = rng.random(n_items) ** 2
    rest = rng.choice(n_items, task.n_tokens - n_items, p=weights / weights.sum())
    items = rng.permutation(np.concatenate([np.arange(n_items), rest]))
    prototypes = unit(rng.standard_normal((n_items, task.width)))
    labels = rng.integers(task.n_classes, size=n_items)
    queried = rng.integers(n_items, size=QUERIES)
    return Episode(
        keys=occurrences(rng, prototypes[items], task.noise),
        values=np.eye(task.n_classes)[labels[items]],
        items=items,
        queries=occurrences(rng, prototypes[queried], task.noise),
        answers=labels[queried],
    )


Draw = Callable[[np.random.Generator, RecallTask], Episode]
DRAWS: Mapping[str, Draw] = {"even": even, "uneven": uneven}


def probe(rng: np.random.Generator, task: RecallTask, n_streams: int, draw: Draw = even) -> Probe:
    """Streams as tensors."""
    drawn = [draw(rng, task) for _ in range(n_streams)]
    rows = ([one.keys, one.values, one.queries, one.answers] for one in drawn)
    columns = (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))
    return Probe(*(part.float() if part.is_floating_point() else part for part in columns))


class Batches:
    """The batches of a training, in order; they are drawn once for all gates trained on them."""

    def __init__(self, draw: Draw, task: RecallTask, seed: int, n_streams: int) -> None:
        rng = np.random.default_rng(seed)
        self._next = partial(probe, rng, task, n_streams, draw)
        self._drawn: list[Probe] = []

    def __iter__(self) -> Iterator[Probe]:
        """From the first one."""
        for place in count():
            if place == len(self._drawn):
                self._drawn.append(self._next())
            yield self._drawn[place]


batches_of = lru_cache(maxsize=1)(Batches)


@lru_cache(maxsize=1)
def test_streams(task: RecallTask, seed: int, n_streams: int) -> Probe:
    """Even streams to measure a gate on."""
    return probe(np.random.default_rng((seed, 1)), task, n_streams)


# Losses


def soft_loss(gate: Gate, batch: Probe) -> Tensor:
    """The paper's loss."""
    return task_loss(gate, batch, budget=KEPT, theta=THETA)


def distillation_loss(gate: Gate, batch: Probe) -> Tensor:
    """Cross-entropy against what the rule keeps."""
    return rule_loss(gate, batch, tau=TAU)


def opposite_loss(gate: Gate, batch: Probe) -> Tensor:
    """Cross-entropy against what the rule drops: it makes a gate that fails, to start from."""
    return distillation(gate.logit(batch.novelty, batch.keys), batch.novelty <= TAU)


def sampled_loss(gate: Gate, batch: Probe) -> Tensor:
    """NLL of the answers from M sampled tokens; the budget penalty sets the level of g."""
    logit = gate.logit(batch.novelty, batch.keys)
    weights = (batch.queries @ batch.keys.mT / THETA).exp() * sampled_top(logit, KEPT)[:, None]
    mass = weights @ batch.values + FLOOR  # (B, Q, C)
    likelihood = mass.gather(-1, batch.answers[..., None])[..., 0] / mass.sum(-1)
    return budget_penalty(logit.sigmoid()[..., None], KEPT) - likelihood.log().mean()


def sampled_top(logit: Tensor, n_kept: int) -> Tensor:
    """1 for the top tokens under Gumbel noise and 0 for the rest, (B, L), straight through.

    The gradient is that of a sigmoid centred between the last token kept and the first dropped, so
    that tokens on both sides have one. The mean of the logits is subtracted first; otherwise the
    gradient would raise all logits together.
    """
    level = torch.rand_like(logit).clamp(1e-9, 1 - 1e-7)
    drawn = logit - logit.mean(-1, keepdim=True) - torch.log(-torch.log(level))
    last = drawn.topk(n_kept + 1).values[:, -2:].mean(-1, keepdim=True).detach()
    slope = torch.sigmoid(drawn - last)
    return (drawn > last).to(slope) + (slope - slope.detach())


Loss = Callable[[Gate, Probe], Tensor]
LOSSES: Mapping[str, Loss] = {
    "soft": soft_loss,
    "to the rule": distillation_loss,
    "by chance": sampled_loss,
}


def train(
    gate: Gate, loss: Loss, task: RecallTask, seed: int, steps: int, draw: Draw, n_test: int
) -> Fit:
    """Train on one loss; the gate's scores on even streams before and after."""
    torch.manual_seed(seed)
    batches = iter(batches_of(draw, task, seed, STREAMS))
    test = test_streams(task, seed, n_test)
    return fit(gate, loss, batches.__next__, test, budget=KEPT, steps=steps)


# Inside a layer

LAYER_TASK = MQARTask(n_items=8, repeats=3, n_keys=64, n_values=16)
PAPER_TASK = MQARTask(n_items=64, repeats=4, n_keys=64, n_values=16)
LAYER_STEPS, LAYER_STREAMS, LAYER_RATE = 150, 8, 1e-2
LAYER_BUDGET = 18  # keys of a sequence: 8 names, 8 values or fewer, a blank, the first token
LAYER_TAU = 0.15
LAYER_WIDTH = 32
LayerMake = Callable[[], DistinctAttention]


def layer(gate: Gate | None) -> DistinctAttention:
    """A layer of slots with the gate, or with a fixed threshold."""
    heads = Heads(1, LAYER_WIDTH, lag=1)
    if gate is not None:
        return DistinctAttention(LAYER_WIDTH, heads, gate=gate, budget=LAYER_BUDGET)
    fixed, reading = Concentration.fixed(LAYER_TAU), Reading("distinct", "first")
    return DistinctAttention(LAYER_WIDTH, heads, concentration=fixed, reading=reading)


LAYERS: Mapping[str, tuple[str, Role, str, LayerMake]] = {
    "rule": ("Rule, fixed threshold", "cache", f"tau {LAYER_TAU}", lambda: layer(None)),
    "two": ("Two parameters", "cache", "from a=10, b=.4", lambda: layer(NoveltyGate())),
    "flat": ("Two parameters", "added", "from a=.1, b=.1", lambda: layer(NoveltyGate(0.1, 0.1))),
    "shut": ("Two parameters", "added", "from a=10, b=1.8", lambda: layer(NoveltyGate(10.0, 1.8))),
    "metric": (
        "A learned metric",
        "added",
        "from the cosine",
        lambda: layer(MetricGate(LAYER_WIDTH)),
    ),
    "network": (
        "A network",
        "added",
        "on key and novelty",
        lambda: layer(KeyNoveltyGate(LAYER_WIDTH)),
    ),
}


def n_layer_seeds(scale: Scale) -> int:
    """How many of the seeds train a language model."""
    return n_seeds(scale) if scale.part >= 1 else 2


def measure_layer(make: LayerMake, seed: int) -> tuple[float, float, float]:
    """Recall, slots and tau on the paper's stream, trained on shorter ones; slots are hard."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    layer, backbone = make(), Mamba2(LAYER_WIDTH, states=16, head=LAYER_WIDTH)
    model = HybridLM(LAYER_TASK.vocabulary, LAYER_WIDTH, [backbone, layer])
    drawn = (LAYER_TASK.draw(rng, LAYER_STREAMS) for _ in range(LAYER_STEPS))
    batches = ((torch.from_numpy(one.tokens), torch.from_numpy(one.targets)) for one in drawn)
    steps = train_model(
        model, batches, steps=LAYER_STEPS, rate=LAYER_RATE, every=LAYER_STEPS,
        anneal=Ramp(1.0, 0.0, 0.5),
    )  # fmt: skip
    deque(steps, maxlen=0)
    test = PAPER_TASK.draw(np.random.default_rng((seed, 1)), LAYER_STREAMS)
    asked = torch.from_numpy(np.where(test.asked, test.targets, SILENT))
    found = recall_of(model, torch.from_numpy(test.tokens), asked)
    assert layer.slots_per_token is not None
    return found, float(layer.slots_per_token) * PAPER_TASK.n_tokens, float(layer.tau)
